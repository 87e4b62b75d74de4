// SPDX-License-Identifier: Apache-2.0
#include "core/ops/cross_entropy.h"

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

Axis terms_axis(const Attributes& attributes) {
  return {"terms", attributes.get(key::kTotal) ? 3 : 2, {}};
}

// Returns the attributes with the shard position of the node, for a primitive on the same shard.
Attributes placed(Attributes attributes, const Node& node) {
  for (const auto& name : {key::kOrigin, key::kExtent})
    if (node.attributes.has(name)) attributes.set(name, node.attributes.get(name));
  return attributes;
}

// Operands 0 to 2: logits, labels and maximum.
void check_shard_operands(const InferContext& context) {
  refuse_partial(context);
  const std::string& axis = context.attributes.get(key::kAxis);
  const Type& logits = context.inputs[0];
  last_axis_of(context, 0, axis);
  check_dtype(context, 1, DType::kI32);
  const DType wide = wide_dtype(logits.dtype);
  const Type rows = without_axis(logits, axis, wide);
  check_same_axes(context, 1, rows.axes);
  check_dtype(context, 2, wide);
  check_same_axes(context, 2, rows.axes);
}

Type terms_type(const InferContext& context) {
  const Type& logits = context.inputs[0];
  const std::string& axis = context.attributes.get(key::kAxis);
  Type type = without_axis(logits, axis, wide_dtype(logits.dtype));
  type.axes.insert(type.axes.begin(), terms_axis(context.attributes));
  return type;
}

Types infer_shard(const InferContext& context) {
  check_shard_operands(context);
  Type type = terms_type(context);
  const std::vector<std::string>& split = context.inputs[0].axes.back().split;
  if (!split.empty()) type.partial = {PartialKind::kSum, mesh_union(context.mesh, {}, split)};
  return {type};
}

Tensors decompose_shard(const Node& node, std::span<const Tensor> inputs) {
  const Attributes& attributes = node.attributes;
  const std::string& axis = attributes.get(key::kAxis);
  const Tensor z = soft_cap(widened(inputs[0]), attributes.get(key::kSoftCap));
  const Tensor picked = trace_op(kPickOp, {widened(inputs[0]), inputs[1]},
                                 placed({{key::kAxis, axis}}, node), node.site);
  Tensors terms = {reduce_sum(exp(z - inputs[2]), axis), picked};
  if (attributes.get(key::kTotal)) terms.push_back(reduce_sum(z, axis));
  for (Tensor& term : terms) term = broadcast(term, {{"terms", 1, {}}});
  return {concat(terms, "terms")};
}

// Operands: logits, labels, maximum and the terms' cotangent.
Types infer_shard_grad(const InferContext& context) {
  check_shard_operands(context);
  const Type terms = terms_type(context);
  check_dtype(context, 3, terms.dtype);
  check_same_axes(context, 3, terms.axes);
  return {context.inputs[0]};
}

Tensors decompose_shard_grad(const Node& node, std::span<const Tensor> inputs) {
  const Attributes& attributes = node.attributes;
  const double cap = attributes.get(key::kSoftCap);
  const Tensor z = soft_cap(widened(inputs[0]), cap);
  const auto cotangent = [&](int64_t term) {
    return reduce_sum(slice(inputs[3], "terms", term, term + 1), "terms");
  };
  Tensor slope = exp(z - inputs[2]) * cotangent(0);
  if (attributes.get(key::kTotal)) slope = slope + cotangent(2);
  slope = soft_cap_grad(z, slope, cap);
  const Axis& vocab = z.type().axis(attributes.get(key::kAxis));
  Attributes place = axis_attributes(vocab);
  place.set(key::kDtype, z.dtype());
  const Tensor chosen = trace_op(kOneHotOp, {inputs[1]}, placed(std::move(place), node), node.site);
  return {as_dtype(slope + chosen * cotangent(1), inputs[0].dtype())};
}

Tensors vjp_shard(const VjpContext& context) {
  const Tensor dlogits =
      trace_op(kCrossEntropyShardGradOp,
               {context.inputs[0], context.inputs[1], context.inputs[2], context.cotangents[0]},
               context.node.attributes, context.node.site);
  return {dlogits, Tensor(), Tensor()};
}

struct Terms {
  Terms(const Attributes& attributes)  // NOLINT(google-explicit-constructor): the same in words.
      : axis(attributes.get(key::kAxis)),
        smoothing(attributes.get(key::kLabelSmoothing)),
        z_loss(attributes.get(key::kZLoss)),
        soft_cap(attributes.get(key::kSoftCap)) {}

  std::string axis;
  double smoothing, z_loss, soft_cap;
};

// Values of each row of capped logits z: the maximum, the sum of exp(z - maximum), the label's z,
// and the sum of z (if labels are smoothed).
struct Row {
  Tensor maximum, sum, picked, total;
};

// Computes loss, log-likelihood, correctness and logsumexp.
Tensors losses(const Terms& terms, const Row& row, int64_t vocab) {
  const Tensor lse = row.maximum + log(row.sum);
  Tensor loss = lse - row.picked * (1.0 - terms.smoothing);
  if (terms.smoothing > 0.0)
    loss = loss - row.total * (terms.smoothing / static_cast<double>(vocab));
  if (terms.z_loss > 0.0) loss = loss + square(lse) * terms.z_loss;
  const Tensor correct = cast(equal(row.picked, row.maximum), lse.dtype());
  return {loss, row.picked - lse, correct, lse};
}

// Computes the losses of a split vocabulary: one maximum and one sum per row cross the mesh.
Tensors split_losses(const Terms& terms, const Operand& logits, const Tensor& labels) {
  const double cap = terms.soft_cap;
  const Tensor largest = reduce_max({stop_gradient(logits), logits.site}, terms.axis);
  Row row;
  row.maximum = soft_cap(widened(reduced(largest)), cap);
  const bool smooth = terms.smoothing > 0.0;
  const Tensor sums =
      reduced(cross_entropy_shard(logits, labels, row.maximum, terms.axis, cap,
                                  smooth ? ShardTotal::kOfLogits : ShardTotal::kNone));
  const auto term = [&](double number) {
    return pick(sums, constant(number, DType::kI32, row.maximum.type().axes), "terms");
  };
  row.sum = term(0);
  row.picked = soft_cap(term(1), cap);
  if (smooth) row.total = term(2);
  return losses(terms, row, logits.tensor.size(terms.axis));
}

// Computes the losses of a split vocabulary where each device has whole rows.
Tensors whole_losses(const Attributes& attributes, const Tensor& logits, const Tensor& labels) {
  const std::string& axis = attributes.get(key::kAxis);
  const Type type = with_whole_axis(logits.type(), axis, traced_mesh());
  const Tensor rows = reshard(labels, without_axis(type, axis, DType::kI32));
  Tensors results = trace_node(kCrossEntropyOp, {reshard(logits, type), rows}, attributes, {});
  for (Tensor& result : results)
    result = reshard(result, without_axis(logits.type(), axis, result.dtype()));
  return results;
}

void check_loss_operands(const InferContext& context) {
  refuse_partial(context);
  const std::string& axis = context.attributes.get(key::kAxis);
  unsplit_last_axis_of(context, 0, axis);
  check_dtype(context, 1, DType::kI32);
  const Type rows = without_axis(context.inputs[0], axis, DType::kI32);
  for (size_t i = 1; i < context.inputs.size(); ++i) check_same_axes(context, i, rows.axes);
}

// Operands: logits, labels, logsumexp and the loss's cotangent.
Types infer_cross_entropy_grad(const InferContext& context) {
  check_loss_operands(context);
  return {context.inputs[0]};
}

Tensors decompose_cross_entropy_grad(const Node& node, std::span<const Tensor> inputs) {
  const Terms terms(node.attributes);
  const Tensor& lse = inputs[2];
  const Tensor z = soft_cap(widened(inputs[0]), terms.soft_cap);
  const Axis& vocab = z.type().axis(terms.axis);
  Tensor gradient = exp(z - lse);
  if (terms.z_loss > 0.0) gradient = gradient * (lse * (2.0 * terms.z_loss) + 1.0);
  gradient = gradient - one_hot(inputs[1], vocab, z.dtype()) * (1.0 - terms.smoothing);
  gradient = gradient - terms.smoothing / static_cast<double>(vocab.size);
  gradient = soft_cap_grad(z, gradient, terms.soft_cap);
  return {as_dtype(gradient * inputs[3], inputs[0].dtype())};
}

Types infer_cross_entropy(const InferContext& context) {
  check_loss_operands(context);
  const Type& logits = context.inputs[0];
  return Types(4, without_axis(logits, logits.axes.back().name, wide_dtype(logits.dtype)));
}

Tensors decompose_cross_entropy(const Node& node, std::span<const Tensor> inputs) {
  const Terms terms(node.attributes);
  const Tensor z = soft_cap(widened(inputs[0]), terms.soft_cap);
  Row row;
  row.maximum = reduce_max(stop_gradient(z), terms.axis);
  row.sum = reduce_sum(exp(z - row.maximum), terms.axis);
  row.picked = pick(z, inputs[1], terms.axis);
  if (terms.smoothing > 0.0) row.total = reduce_sum(z, terms.axis);
  return losses(terms, row, z.size(terms.axis));
}

Tensors vjp_cross_entropy(const VjpContext& context) {
  const Tensor dlogits =
      trace_op(kCrossEntropyGradOp,
               {context.inputs[0], context.inputs[1], context.outputs[3], context.cotangents[0]},
               context.node.attributes, context.node.site);
  return {dlogits, Tensor()};
}

}  // namespace

const Op kCrossEntropyShardGradOp{{.name = "cross_entropy_shard_grad",
                                   .op_class = OpClass::kReduction,
                                   .infer = infer_shard_grad,
                                   .decomposition = decompose_shard_grad,
                                   .flops = flops_per_element<5>,
                                   .anchor = ShardAnchor::kFirstOperand}};
const Op kCrossEntropyShardOp{{.name = "cross_entropy_shard",
                               .op_class = OpClass::kReduction,
                               .infer = infer_shard,
                               .vjp = vjp_shard,
                               .decomposition = decompose_shard,
                               .flops = flops_per_element<5>,
                               .anchor = ShardAnchor::kFirstOperand}};

Tensor cross_entropy_shard(Operand logits, Operand labels, Operand maximum, std::string_view axis,
                           double soft_cap, ShardTotal total) {
  return trace_op(kCrossEntropyShardOp, {axis_last(logits, axis), labels.tensor, maximum.tensor},
                  {{key::kAxis, axis},
                   {key::kSoftCap, soft_cap},
                   {key::kTotal, total == ShardTotal::kOfLogits}},
                  logits.site);
}

const Op kCrossEntropyGradOp{{.name = "cross_entropy_grad",
                              .op_class = OpClass::kReduction,
                              .infer = infer_cross_entropy_grad,
                              .decomposition = decompose_cross_entropy_grad,
                              .flops = flops_per_element<5>}};
const Op kCrossEntropyOp{{.name = "cross_entropy",
                          .op_class = OpClass::kReduction,
                          .infer = infer_cross_entropy,
                          .vjp = vjp_cross_entropy,
                          .decomposition = decompose_cross_entropy,
                          .flops = flops_per_element<5>}};

CrossEntropy cross_entropy(Operand logits, Operand labels, std::string_view axis,
                           const CrossEntropyOptions& options) {
  const Attributes attributes = {{key::kAxis, axis},
                                 {key::kLabelSmoothing, options.label_smoothing},
                                 {key::kZLoss, options.z_loss},
                                 {key::kSoftCap, options.soft_cap}};
  const SiteScope site(logits.site);
  const bool split = logits.tensor.has(axis) && !logits.tensor.type().axis(axis).split.empty();
  Tensors results;
  if (split && trace_state().is_mesh_invariant)
    results = whole_losses(attributes, axis_last(logits, axis), labels.tensor);
  else if (split)
    results = split_losses(attributes, logits, labels.tensor);
  else
    results = trace_node(kCrossEntropyOp, {axis_last(logits, axis), labels.tensor}, attributes,
                         logits.site);
  return {results[0], stop_gradient({results[1], logits.site}),
          stop_gradient({results[2], logits.site})};
}

}  // namespace tessera
