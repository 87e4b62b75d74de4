// SPDX-License-Identifier: Apache-2.0
// A replicated value as a pending sum: one device keeps it, the others have zeros. No product: what
// is not finite must not come back as NaN.
#include <cstring>

#include "core/backend/cpu/composite_kernel.h"
#include "core/ops/collective.h"

namespace tessera {
namespace {

class MaskToOwnerKernel final : public HostKernel {
 public:
  MaskToOwnerKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : keep_(flag_attribute(node, "keep")),
        bytes_(graph.type(node.outputs[0]).bytes()),
        team_(team) {}

  bool may_overwrite(int64_t, int64_t) const override { return true; }

  void run(const HostArgs& args) override {
    constexpr int64_t kGrain = 65536;
    const std::byte* const from = args.inputs[0];
    std::byte* const to = args.outputs[0];
    if (keep_ && from == to) return;
    team_.parallel(bytes_, kGrain, [&](Range part, int) {
      const auto size = static_cast<size_t>(part.size());
      if (keep_) {
        std::memcpy(to + part.begin, from + part.begin, size);
      } else {
        std::memset(to + part.begin, 0, size);
      }
    });
  }

 private:
  bool keep_;
  int64_t bytes_;
  ThreadTeam& team_;
};

const KernelRegistrar kRegisterMaskToOwner{kMaskToOwnerOp, make_kernel<MaskToOwnerKernel>};

}  // namespace
}  // namespace tessera
