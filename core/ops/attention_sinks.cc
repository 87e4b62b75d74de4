// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_sinks.h"

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// The last operands; before them those of attention.
struct Last {
  explicit Last(size_t operands) : out(operands - 3), lse(operands - 2), sinks(operands - 1) {}
  size_t out, lse, sinks;
};

Types infer_sinks(const InferContext& context) {
  refuse_partial(context);
  const Last at(context.inputs.size());
  check_axis_names(context, at.out, "batch seq heads head_dim");
  const Type& out = context.inputs[at.out];
  check_same_axes(context, at.lse, {out.axes[0], out.axes[2], out.axes[1]});
  check_same_axes(context, at.sinks, {out.axes[2]});
  check_dtypes_agree(context, at.lse, at.sinks);
  return {out, context.inputs[at.lse]};
}

Tensors decompose_sinks(const Node&, std::span<const Tensor> inputs) {
  const Last at(inputs.size());
  const Attended result = with_sinks({inputs[at.out], inputs[at.lse]}, inputs[at.sinks]);
  return {result.out, result.lse};
}

// d out'/d s = -out'·(1 - σ(lse - s)), where 1 - σ is exp(s - lse').
Tensor sinks_gradient(const VjpContext& context, const Tensor& sinks) {
  const Tensor &out = context.outputs[0], &lse = context.outputs[1];
  const Tensor product = widened(out) * widened(context.cotangents[0]);
  const Tensor sums = transpose(reduce_sum(product, "head_dim"), "batch heads seq");
  return neg(reduce_sum(sums * exp(sinks - lse), "batch seq"));
}

Tensors vjp_sinks(const VjpContext& context) {
  const Last at(context.inputs.size());
  Tensors operands(context.inputs.begin(), context.inputs.begin() + static_cast<int64_t>(at.out));
  operands.insert(operands.end(), context.outputs.begin(), context.outputs.end());
  operands.push_back(context.cotangents[0]);
  Tensors cotangents =
      trace_node(kAttentionGradOp, operands, context.node.attributes, context.node.site);
  cotangents.resize(context.inputs.size());  // None for segment ids, out and lse.
  cotangents[at.sinks] = sinks_gradient(context, context.inputs[at.sinks]);
  return cotangents;
}

}  // namespace

const Op kAttentionSinksOp{{.name = "attention_sinks",
                            .op_class = OpClass::kOther,
                            .infer = infer_sinks,
                            .vjp = vjp_sinks,
                            .decomposition = decompose_sinks,
                            .flops = no_flops}};

Attended with_sinks(const Attended& plain, const Tensor& sinks) {
  const Tensor lse = transpose(plain.lse, "batch seq heads");
  const Tensor score = as_dtype(sinks, lse.dtype());
  const Tensor share = sigmoid(lse - score);
  const Tensor most = maximum(plain.lse, score);
  return {as_dtype(widened(plain.out) * share, plain.out.dtype()),
          most + log(exp(plain.lse - most) + exp(score - most))};
}

Tensor attention_sinks(std::span<const Tensor> operands, const Attended& plain, const Tensor& sinks,
                       const Attributes& attributes, const SourceSite& site) {
  Tensors all(operands.begin(), operands.end());
  all.insert(all.end(), {plain.out, plain.lse, as_dtype(sinks, plain.lse.dtype())});
  return trace_node(kAttentionSinksOp, all, attributes, site)[0];
}

}  // namespace tessera
