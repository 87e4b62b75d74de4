// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/runtime/comm/collective_kernel.h"

namespace tessera {
namespace {

class GatherKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 private:
  void communicate(const HostArgs& args) override {
    share_parts([this](int64_t index) { return info().part(index); },
                [this](const Member& local) {
                  return Source{info().shard(), input_of(local)};
                },
                args.inputs[0], args.outputs[0], args.scratch);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_gather_kernel(CommunicatorState& state, int64_t device,
                                           std::shared_ptr<const CollectiveInfo> info) {
  return std::make_unique<GatherKernel>(state, device, std::move(info));
}

}  // namespace tessera
