// SPDX-License-Identifier: Apache-2.0
// The op that adds sinks to the results of attention. Its gradient is that of attention, from the
// results with sinks (core/ops/attention_sinks.h).
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/attention.h"
#include "core/ops/attention_sinks.h"
#include "core/ops/op_helpers.h"

namespace tessera {
namespace {

// The last operands of attention_sinks, after those of attention.
struct SinkOperands {
  explicit SinkOperands(size_t count) : out(count - 3), lse(count - 2), sinks(count - 1) {}
  size_t out, lse, sinks;
};

Types infer_attention_sinks(const InferContext& context) {
  refuse_partial(context);
  const SinkOperands at(context.inputs.size());
  check_axis_names(context, at.out, "batch seq heads head_dim");
  const Type& out = context.inputs[at.out];
  check_same_axes(context, at.lse, {out.axes[0], out.axes[2], out.axes[1]});
  check_same_axes(context, at.sinks, {out.axes[2]});
  check_dtypes_agree(context, at.lse, at.sinks);
  return {out, context.inputs[at.lse]};
}

Tensors decompose_attention_sinks(const Node&, std::span<const Tensor> inputs) {
  const SinkOperands at(inputs.size());
  const Attended result = with_sinks({inputs[at.out], inputs[at.lse]}, inputs[at.sinks]);
  return {result.out, result.lse};
}

// The cotangents of attention's operands go past the attention node, which gets none.
Tensors vjp_attention_sinks(const VjpContext& context) {
  const SinkOperands at(context.inputs.size());
  const Tensor& cotangent = context.cotangents[0];
  Tensors operands(context.inputs.begin(), context.inputs.begin() + static_cast<int64_t>(at.out));
  operands.insert(operands.end(), {context.outputs[0], context.outputs[1], cotangent});
  Tensors cotangents =
      trace_node(kAttentionGradOp, operands, context.node.attributes, context.node.site);
  cotangents.resize(context.inputs.size());
  cotangents[at.sinks] =
      sinks_gradient({context.outputs[0], context.outputs[1]}, cotangent, context.inputs[at.sinks]);
  return cotangents;
}

}  // namespace

const Op kAttentionSinksOp{{.name = "attention_sinks",
                            .op_class = OpClass::kOther,
                            .infer = infer_attention_sinks,
                            .vjp = vjp_attention_sinks,
                            .decomposition = decompose_attention_sinks,
                            .flops = no_flops}};

}  // namespace tessera
