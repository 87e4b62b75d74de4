// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/squared_norms.h"

#include <vector>

#include "core/ops/optimizer.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/kernels/rows.h"
#include "plugins/cuda/kernels/tensor_launches.h"

namespace tessera::cuda {
namespace {

class SquaredNormKernel final : public CudaKernel {
 public:
  SquaredNormKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        squares_(context.function("squared_norms", "sum_of_squares")),
        total_(context.function("squared_norms", "add_squared_norms")) {
    for (const ValueId value : node.inputs) {
      const int64_t elements = graph.type(value).elements();
      const bool is_bf16 = float_suffix(graph, node, value) == "bf16";
      tensors_.push_back({.elements = elements, .is_bf16 = is_bf16});
      blocks_ += decltype(SquaredNormParameters::table)::blocks_of(elements);
    }
  }

  int64_t scratch_bytes() const override { return 4 * blocks_; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    auto* const sums = pointer_as<float>(args.scratch);
    TensorLaunches launches(context_, stream, squares_, SquaredNormParameters{.sums = sums});
    for (size_t i = 0; i < tensors_.size(); ++i) {
      SquaredTensor tensor = tensors_[i];
      tensor.from = pointer_as<const void>(args.inputs[i]);
      tensor.aligned = args.inputs[i].value() % 16 == 0;
      launches.add(tensor);
    }
    launches.finish();
    launch(context_, stream, total_, {.threads = kRowThreads}, static_cast<const float*>(sums),
           blocks_, pointer_as<float>(args.outputs[0]));
  }

 private:
  Context& context_;
  Function squares_, total_;
  std::vector<SquaredTensor> tensors_;
  int64_t blocks_ = 0;
};

const KernelRegistrar kRegisterSquaredNorm{kSquaredNormOp, make_kernel<SquaredNormKernel>};

}  // namespace
}  // namespace tessera::cuda
