// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/device/kernel.h"

#include <mutex>
#include <vector>

#include "core/base/error.h"
#include "plugins/cuda/device/library.h"

namespace tessera::cuda {
namespace {

std::vector<std::string (*)(Context&)>& descriptions() {
  static auto* instance = new std::vector<std::string (*)(Context&)>;
  return *instance;
}

struct Noted {
  std::mutex mutex;
  std::map<std::string, int> kernels;
};
Noted& noted() {
  static auto* instance = new Noted;
  return *instance;
}

}  // namespace

void note_implementation(std::string_view name) {
  const std::lock_guard lock(noted().mutex);
  ++noted().kernels[std::string(name)];
}

std::map<std::string, int> noted_implementations() {
  const std::lock_guard lock(noted().mutex);
  return noted().kernels;
}

DescriptionRegistrar::DescriptionRegistrar(std::string (*describe)(Context&)) {
  descriptions().push_back(describe);
}

std::string description_of_libraries(Context& context) {
  std::string text;
  for (const auto describe : descriptions()) text += ", " + describe(context);
  const std::string libraries = noted_libraries();
  return libraries.empty() ? text : fmt::format("{}; libraries: {}", text, libraries);
}

std::string_view float_suffix(const Graph& graph, const Node& node, ValueId value) {
  const DType dtype = graph.type(value).dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16)
    fail("{}: no CUDA kernel for {}; cast it to f32 or bf16", node.op->name, dtype_name(dtype));
  return dtype_name(dtype);
}

}  // namespace tessera::cuda
