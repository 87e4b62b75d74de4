// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient: rows are shared out among threads.
#include "core/ops/softmax.h"

#include <algorithm>

#include "core/backend/cpu/composite_kernel.h"
#include "core/backend/cpu/norm/softmax_kernels.h"

namespace tessera {
namespace {

class SoftmaxKernel final : public HostKernel {
 public:
  SoftmaxKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : dtype_(vector_dtype(graph, node, 0)),
        width_(graph.type(node.inputs[0]).axes.back().size),
        count_(graph.type(node.inputs[0]).elements() / width_),
        gradient_(node.inputs.size() == 2),
        team_(team) {}

  bool may_overwrite(int64_t, int64_t) const override { return true; }

  void run(const HostArgs& args) override {
    team_.parallel(count_, std::max<int64_t>(1, 4096 / width_), [&](Range range, int) {
      if (gradient_) {
        softmax_grad_rows(dtype_, width_, args.inputs[0], args.inputs[1], args.outputs[0],
                          range.begin, range.end);
      } else {
        softmax_rows(dtype_, width_, args.inputs[0], args.outputs[0], range.begin, range.end);
      }
    });
  }

 private:
  DType dtype_;
  int64_t width_, count_;
  bool gradient_;
  ThreadTeam& team_;
};

const KernelRegistrar kRegisterSoftmax{{&kSoftmaxOp, &kSoftmaxGradOp}, make_kernel<SoftmaxKernel>};

}  // namespace
}  // namespace tessera
