// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/softmax.h"

#include "core/ops/norm.h"
#include "plugins/cuda/kernels/row_kernel.h"

namespace tessera::cuda {
namespace {

// The kernel of softmax and softmax_grad.
class SoftmaxKernel final : public RowKernel {
 public:
  SoftmaxKernel(const Graph& graph, const Node& node, Context& context)
      : RowKernel(graph, node, context, "softmax", kHeldPacks) {}

  bool may_overwrite(int64_t, int64_t) const override { return true; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    const RowForm& form = form_for(args);
    SoftmaxParameters p = {};
    p.rows = form.rows;
    p.x = pointer_as<const void>(args.inputs[0]);
    if (args.inputs.size() > 1) p.cotangent = pointer_as<const void>(args.inputs[1]);
    p.y = pointer_as<void>(args.outputs[0]);
    launch(context(), stream, form.function, form.shape, p);
  }
};

const KernelRegistrar kRegisterSoftmax{{&kSoftmaxOp, &kSoftmaxGradOp}, make_kernel<SoftmaxKernel>};

}  // namespace
}  // namespace tessera::cuda
