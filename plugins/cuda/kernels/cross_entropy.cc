// SPDX-License-Identifier: Apache-2.0
#include "plugins/cuda/kernels/cross_entropy.h"

#include <fmt/format.h>

#include "core/ops/cross_entropy.h"
#include "core/ops/reshard.h"
#include "plugins/cuda/kernels/row_kernel.h"

namespace tessera::cuda {
namespace {

// The base of all four kernels: the function, the shape, the logits and the labels.
class LogitKernel : public CudaKernel {
 protected:
  LogitKernel(const Graph& graph, const Node& node, Context& context)
      : context_(context),
        function_(context.function(
            "cross_entropy",
            fmt::format("{}_{}", node.op->name, float_suffix(graph, node, node.inputs[0])))) {
    const Type& logits = graph.type(node.inputs[0]);
    const int64_t width = logits.axes.back().size;
    const int pack = static_cast<int>(16 / dtype_bytes(logits.dtype));
    z_.rows = row_shape(logits.elements() / width, width, pack, kHeldPacks);
    shape_ = {.blocks_x = row_blocks(z_.rows), .threads = row_threads(z_.rows)};
    z_.soft_cap = static_cast<float>(node.attributes.get(key::kSoftCap));
    z_.inverse_cap = z_.soft_cap > 0.0f ? 1.0f / z_.soft_cap : 0.0f;
  }

  int64_t rows() const { return z_.rows.count; }
  LogitRows operands(const LaunchArgs& args) const {
    LogitRows z = z_;
    z.logits = pointer_as<const void>(args.inputs[0]);
    z.labels = pointer_as<const int32_t>(args.inputs[1]);
    return z;
  }
  template <typename Parameters>
  void start(CUstream stream, const Parameters& p) const {
    launch(context_, stream, function_, shape_, p);
  }

 private:
  Context& context_;
  Function function_;
  LogitRows z_ = {};
  LaunchShape shape_;
};

bool same_offset(const LaunchArgs& args) {
  return args.inputs[0].value() % 16 == args.outputs[0].value() % 16;
}

// The global index of the first entry of a shard of the vocabulary.
int64_t origin_of(const Graph& graph, const Node& node) {
  return origin_along(node.attributes, graph.type(node.inputs[0]).rank() - 1);
}

class CrossEntropyKernel final : public LogitKernel {
 public:
  CrossEntropyKernel(const Graph& graph, const Node& node, Context& context)
      : LogitKernel(graph, node, context) {
    p_.smoothing = static_cast<float>(node.attributes.get(key::kLabelSmoothing));
    p_.z_loss = static_cast<float>(node.attributes.get(key::kZLoss));
  }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    CrossEntropyParameters p = p_;
    p.z = operands(args);
    p.loss = pointer_as<float>(args.outputs[0]);
    p.log_likelihood = pointer_as<float>(args.outputs[1]);
    p.correct = pointer_as<float>(args.outputs[2]);
    p.lse = pointer_as<float>(args.outputs[3]);
    start(stream, p);
  }

 private:
  CrossEntropyParameters p_ = {};
};

class CrossEntropyGradKernel final : public LogitKernel {
 public:
  CrossEntropyGradKernel(const Graph& graph, const Node& node, Context& context)
      : LogitKernel(graph, node, context) {
    p_.smoothing = static_cast<float>(node.attributes.get(key::kLabelSmoothing));
    p_.z_loss = static_cast<float>(node.attributes.get(key::kZLoss));
  }

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    CrossEntropyGradParameters p = p_;
    p.z = operands(args);
    p.lse = pointer_as<const float>(args.inputs[2]);
    p.cotangent = pointer_as<const float>(args.inputs[3]);
    p.dlogits = pointer_as<void>(args.outputs[0]);
    p.same_offset = same_offset(args);
    start(stream, p);
  }

 private:
  CrossEntropyGradParameters p_ = {};
};

class CrossEntropyShardKernel final : public LogitKernel {
 public:
  CrossEntropyShardKernel(const Graph& graph, const Node& node, Context& context)
      : LogitKernel(graph, node, context),
        origin_(origin_of(graph, node)),
        with_total_(node.attributes.get(key::kTotal)) {}

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    CrossEntropyShardParameters p = {};
    p.z = operands(args);
    p.origin = origin_;
    p.maximum = pointer_as<const float>(args.inputs[2]);
    p.sum = pointer_as<float>(args.outputs[0]);
    p.picked = p.sum + rows();
    if (with_total_) p.total = p.picked + rows();
    start(stream, p);
  }

 private:
  int64_t origin_;
  bool with_total_;
};

class CrossEntropyShardGradKernel final : public LogitKernel {
 public:
  CrossEntropyShardGradKernel(const Graph& graph, const Node& node, Context& context)
      : LogitKernel(graph, node, context),
        origin_(origin_of(graph, node)),
        with_total_(node.attributes.get(key::kTotal)) {}

  bool may_overwrite(int64_t, int64_t input) const override { return input == 0; }

  void enqueue(CUstream stream, const LaunchArgs& args) override {
    CrossEntropyShardGradParameters p = {};
    p.z = operands(args);
    p.origin = origin_;
    p.maximum = pointer_as<const float>(args.inputs[2]);
    p.sum = pointer_as<const float>(args.inputs[3]);
    p.picked = p.sum + rows();
    if (with_total_) p.total = p.picked + rows();
    p.dlogits = pointer_as<void>(args.outputs[0]);
    p.same_offset = same_offset(args);
    start(stream, p);
  }

 private:
  int64_t origin_;
  bool with_total_;
};

const KernelRegistrar kRegisterCrossEntropy{kCrossEntropyOp, make_kernel<CrossEntropyKernel>};
const KernelRegistrar kRegisterCrossEntropyGrad{kCrossEntropyGradOp,
                                                make_kernel<CrossEntropyGradKernel>};
const KernelRegistrar kRegisterShard{kCrossEntropyShardOp, make_kernel<CrossEntropyShardKernel>};
const KernelRegistrar kRegisterShardGrad{kCrossEntropyShardGradOp,
                                         make_kernel<CrossEntropyShardGradKernel>};

}  // namespace
}  // namespace tessera::cuda
