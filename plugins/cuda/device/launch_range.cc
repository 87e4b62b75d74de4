// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/launch_range.h"

#include <string>

#include <fmt/format.h>

#include "core/graph/op.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

namespace tessera::cuda {

#if __has_include(<nvtx3/nvToolsExt.h>)
namespace {

// Null unless a profiler is attached.
nvtxDomainHandle_t profiler() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("tessera");
  return domain;
}

std::string label(const Node* node) {
  if (node == nullptr) return "the step as a CUDA graph";
  return fmt::format("{}{}{}: {}", phase_name(node->phase), node->path.empty() ? "" : " ",
                     node->path, node->op->name);
}

}  // namespace

LaunchRange::LaunchRange(const Node* node) {
  if (profiler() == nullptr) return;
  const std::string text = label(node);
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.c_str();
  nvtxDomainRangePushEx(profiler(), &attributes);
}

LaunchRange::~LaunchRange() {
  if (profiler() != nullptr) nvtxDomainRangePop(profiler());
}
#else  // The toolkit was installed without NVTX.
LaunchRange::LaunchRange(const Node*) {}
LaunchRange::~LaunchRange() = default;
#endif

}  // namespace tessera::cuda
