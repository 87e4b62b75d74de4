// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and its gradient, of a whole vocabulary or a shard of it: rows are shared out among
// threads.
#include "core/ops/cross_entropy.h"

#include "core/backend/cpu/composite_kernel.h"
#include "core/backend/cpu/norm/cross_entropy_kernels.h"
#include "core/backend/cpu/shard_elements.h"
#include "core/ops/cross_entropy_shard.h"

namespace tessera {
namespace {

// Both kernels' shapes and attributes, filled in once; operands are set for each run.
template <typename Rows>
Rows rows_of(const Graph& graph, const Node& node) {
  Rows rows;
  rows.dtype = vector_dtype(graph, node, 0);
  rows.vocab = graph.type(node.inputs[0]).axes.back().size;
  rows.smoothing = float_attribute(node, "label_smoothing");
  rows.z_loss = float_attribute(node, "z_loss");
  rows.soft_cap = float_attribute(node, "soft_cap");
  return rows;
}

class CrossEntropyKernel final : public HostKernel {
 public:
  CrossEntropyKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : rows_(rows_of<CrossEntropyRows>(graph, node)),
        count_(graph.type(node.inputs[1]).elements()),
        team_(team) {}

  void run(const HostArgs& args) override {
    rows_.logits = args.inputs[0];
    rows_.labels = input_as<int32_t>(args, 1);
    rows_.loss = output_as<float>(args, 0);
    rows_.log_likelihood = output_as<float>(args, 1);
    rows_.correct = output_as<float>(args, 2);
    rows_.lse = output_as<float>(args, 3);
    team_.parallel(count_, 1,
                   [&](Range range, int) { cross_entropy_rows(rows_, range.begin, range.end); });
  }

 private:
  CrossEntropyRows rows_;
  int64_t count_;
  ThreadTeam& team_;
};

class CrossEntropyGradKernel final : public HostKernel {
 public:
  CrossEntropyGradKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : rows_(rows_of<CrossEntropyGradRows>(graph, node)),
        count_(graph.type(node.inputs[1]).elements()),
        team_(team) {}

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void run(const HostArgs& args) override {
    rows_.logits = args.inputs[0];
    rows_.labels = input_as<int32_t>(args, 1);
    rows_.lse = input_as<float>(args, 2);
    rows_.cotangent = input_as<float>(args, 3);
    rows_.dlogits = args.outputs[0];
    team_.parallel(count_, 1, [&](Range range, int) {
      cross_entropy_grad_rows(rows_, range.begin, range.end);
    });
  }

 private:
  CrossEntropyGradRows rows_;
  int64_t count_;
  ThreadTeam& team_;
};

template <typename Rows>
Rows shard_rows_of(const Graph& graph, const Node& node) {
  Rows rows;
  const Type& logits = graph.type(node.inputs[0]);
  rows.dtype = vector_dtype(graph, node, 0);
  rows.vocab = logits.axes.back().size;
  rows.origin = origin_along(node.attributes, logits.rank() - 1);
  rows.soft_cap = float_attribute(node, "soft_cap");
  return rows;
}

class CrossEntropyShardKernel final : public HostKernel {
 public:
  CrossEntropyShardKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : rows_(shard_rows_of<CrossEntropyShardRows>(graph, node)),
        count_(graph.type(node.inputs[1]).elements()),
        with_total_(flag_attribute(node, "total")),
        team_(team) {}

  void run(const HostArgs& args) override {
    rows_.logits = args.inputs[0];
    rows_.labels = input_as<int32_t>(args, 1);
    rows_.maximum = input_as<float>(args, 2);
    rows_.sum = output_as<float>(args, 0);
    rows_.picked = rows_.sum + count_;
    rows_.total = with_total_ ? rows_.picked + count_ : nullptr;
    team_.parallel(count_, 1, [&](Range range, int) {
      cross_entropy_shard_rows(rows_, range.begin, range.end);
    });
  }

 private:
  CrossEntropyShardRows rows_;
  int64_t count_;
  bool with_total_;
  ThreadTeam& team_;
};

class CrossEntropyShardGradKernel final : public HostKernel {
 public:
  CrossEntropyShardGradKernel(const Graph& graph, const Node& node, ThreadTeam& team)
      : rows_(shard_rows_of<CrossEntropyShardGradRows>(graph, node)),
        count_(graph.type(node.inputs[1]).elements()),
        with_total_(flag_attribute(node, "total")),
        team_(team) {}

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void run(const HostArgs& args) override {
    rows_.logits = args.inputs[0];
    rows_.labels = input_as<int32_t>(args, 1);
    rows_.maximum = input_as<float>(args, 2);
    rows_.sum = input_as<float>(args, 3);
    rows_.picked = rows_.sum + count_;
    rows_.total = with_total_ ? rows_.picked + count_ : nullptr;
    rows_.dlogits = args.outputs[0];
    team_.parallel(count_, 1, [&](Range range, int) {
      cross_entropy_shard_grad_rows(rows_, range.begin, range.end);
    });
  }

 private:
  CrossEntropyShardGradRows rows_;
  int64_t count_;
  bool with_total_;
  ThreadTeam& team_;
};

const KernelRegistrar kRegisterCrossEntropy{kCrossEntropyOp, make_kernel<CrossEntropyKernel>};
const KernelRegistrar kRegisterCrossEntropyGrad{kCrossEntropyGradOp,
                                                make_kernel<CrossEntropyGradKernel>};

const KernelRegistrar kRegisterShard{kCrossEntropyShardOp, make_kernel<CrossEntropyShardKernel>};
const KernelRegistrar kRegisterShardGrad{kCrossEntropyShardGradOp,
                                         make_kernel<CrossEntropyShardGradKernel>};

}  // namespace
}  // namespace tessera
