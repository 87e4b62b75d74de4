// SPDX-License-Identifier: Apache-2.0
#include "core/ops/cross_entropy_shard.h"

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/collective.h"
#include "core/ops/composite.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

const std::string& vocab_of(const Attributes& attributes) {
  return attributes.get<std::string>("axis");
}

Axis terms_axis(const Attributes& attributes) {
  return {"terms", attributes.get<int64_t>("total") != 0 ? 3 : 2, {}};
}

Tensor capped_shard(const Tensor& logits, const Attributes& attributes) {
  const double cap = attributes.get<double>("soft_cap");
  const Tensor wide = widened(logits);
  return cap > 0.0 ? tanh(wide / cap) * cap : wide;
}

// Attributes of a primitive that is placed as the logits are.
Attributes placed(Attributes attributes, const Node& node) {
  for (const std::string_view name : {kOrigin, kExtent}) {
    if (!node.attributes.has(name)) continue;
    attributes.set(name, node.attributes.get<std::vector<int64_t>>(name));
  }
  return attributes;
}

// Operands 0 to 2: logits, labels and maximum.
void check_shard_operands(const InferContext& context) {
  refuse_partial(context);
  const std::string& axis = vocab_of(context.attributes);
  const Type& logits = context.inputs[0];
  axis_of(context, 0, axis);
  if (logits.axes.back().name != axis)
    refuse(context, fmt::format("{} is not the last axis of {}, which is {}; transpose it", axis,
                                context.names[0], logits.text()));
  check_dtype(context, 1, DType::kI32);
  const DType wide = wide_dtype(logits.dtype);
  const Type rows = without_axis(logits, axis, wide);
  check_same_axes(context, 1, rows.axes);
  check_dtype(context, 2, wide);
  check_same_axes(context, 2, rows.axes);
}

Type terms_type(const InferContext& context) {
  const Type& logits = context.inputs[0];
  const std::string& axis = vocab_of(context.attributes);
  Type type = without_axis(logits, axis, wide_dtype(logits.dtype));
  type.axes.insert(type.axes.begin(), terms_axis(context.attributes));
  return type;
}

std::vector<Type> infer_shard(const InferContext& context) {
  check_shard_operands(context);
  Type type = terms_type(context);
  const std::vector<std::string>& split = context.inputs[0].axes.back().split;
  if (!split.empty()) type.partial = {PartialKind::kSum, mesh_union(context.mesh, {}, split)};
  return {type};
}

std::vector<Tensor> plain_shard(const Node& node, std::span<const Tensor> inputs) {
  const Attributes& attributes = node.attributes;
  const std::string& axis = vocab_of(attributes);
  const Tensor z = capped_shard(inputs[0], attributes);
  const Tensor picked =
      trace_op(kPickOp, {widened(inputs[0]), inputs[1]}, placed({{"axis", axis}}, node), node.site);
  std::vector<Tensor> terms = {reduce_sum(exp(z - inputs[2]), axis), picked};
  if (attributes.get<int64_t>("total") != 0) terms.push_back(reduce_sum(z, axis));
  for (Tensor& term : terms) term = broadcast(term, {{"terms", 1, {}}});
  return {concat(terms, "terms")};
}

// Operands: logits, labels, maximum and the terms' cotangent.
std::vector<Type> infer_shard_grad(const InferContext& context) {
  check_shard_operands(context);
  const Type terms = terms_type(context);
  check_dtype(context, 3, terms.dtype);
  check_same_axes(context, 3, terms.axes);
  return {context.inputs[0]};
}

std::vector<Tensor> plain_shard_grad(const Node& node, std::span<const Tensor> inputs) {
  const Attributes& attributes = node.attributes;
  const Tensor z = capped_shard(inputs[0], attributes);
  const auto cotangent = [&](int64_t term) {
    return reduce_sum(slice(inputs[3], "terms", term, term + 1), "terms");
  };
  Tensor slope = exp(z - inputs[2]) * cotangent(0);
  if (attributes.get<int64_t>("total") != 0) slope = slope + cotangent(2);
  const double cap = attributes.get<double>("soft_cap");
  if (cap > 0.0) slope = slope * (1.0 - square(z / cap));
  const Axis& vocab = z.type().axis(vocab_of(attributes));
  const Tensor chosen = trace_op(kOneHotOp, {inputs[1]},
                                 placed({{"axis", vocab.name},
                                         {"size", vocab.size},
                                         {"split", vocab.split},
                                         {"dtype", std::string(dtype_name(z.dtype()))}},
                                        node),
                                 node.site);
  return {as_dtype(slope + chosen * cotangent(1), inputs[0].dtype())};
}

double flops_shard(const Graph& graph, const Node& node) {
  return 5.0 * static_cast<double>(graph.type(node.inputs[0]).elements());
}

std::vector<Tensor> vjp_shard(const VjpContext& context) {
  const Tensor dlogits =
      trace_op(kCrossEntropyShardGradOp,
               {context.inputs[0], context.inputs[1], context.inputs[2], context.cotangents[0]},
               context.node.attributes, context.node.site);
  return {dlogits, Tensor(), Tensor()};
}

}  // namespace

const OpDef kCrossEntropyShardGradOp{.name = "cross_entropy_shard_grad",
                                     .op_class = OpClass::kReduction,
                                     .infer = infer_shard_grad,
                                     .decomposition = plain_shard_grad,
                                     .flops = flops_shard,
                                     .anchor = ShardAnchor::kFirstOperand};
const OpDef kCrossEntropyShardOp{.name = "cross_entropy_shard",
                                 .op_class = OpClass::kReduction,
                                 .infer = infer_shard,
                                 .vjp = vjp_shard,
                                 .decomposition = plain_shard,
                                 .flops = flops_shard,
                                 .anchor = ShardAnchor::kFirstOperand};
static const OpRegistrar kRegisterCrossEntropyShard{&kCrossEntropyShardGradOp,
                                                    &kCrossEntropyShardOp};

Tensor cross_entropy_shard(Operand logits, Operand labels, Operand maximum, std::string_view axis,
                           double soft_cap, ShardTotal total) {
  return trace_op(kCrossEntropyShardOp, {axis_last(logits, axis), labels.tensor, maximum.tensor},
                  {{"axis", std::string(axis)},
                   {"soft_cap", soft_cap},
                   {"total", int64_t{total == ShardTotal::kOfLogits}}},
                  logits.site);
}

}  // namespace tessera
