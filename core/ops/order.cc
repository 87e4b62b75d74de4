// SPDX-License-Identifier: Apache-2.0
#include "core/ops/order.h"

#include <algorithm>
#include <bit>
#include <string>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/gather.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

void check_ordered(const InferContext& context) {
  const DType dtype = context.inputs[0].dtype;
  if (!is_floating(dtype) && dtype != DType::kI32)
    refuse(context, "{} is {}, expected a floating dtype or i32; cast it", context.names[0],
           dtype_name(dtype));
  unsplit_axis_of(context, 0, context.attributes.get(key::kAxis));
}

Types infer_argsort(const InferContext& context) {
  refuse_partial(context, 0);
  check_ordered(context);
  Type result = context.inputs[0];
  result.dtype = DType::kI32;
  return {result};
}

Types infer_sort(const InferContext& context) {
  refuse_partial(context);
  check_ordered(context);
  check_dtype(context, 1, DType::kI32);
  check_same_axes(context, 1, context.inputs[0].axes);
  return {context.inputs[0]};
}

Types infer_top_k(const InferContext& context) {
  Type result = infer_argsort(context).front();
  const std::string& name = context.attributes.get(key::kAxis);
  Axis& axis = result.axes[static_cast<size_t>(result.find(name))];
  const Axis k{context.attributes.get(key::kK), context.attributes.get(key::kSize), {}};
  if (k.size < 1 || k.size > axis.size)
    refuse(context, "{}={} of {}={} of {}; expected 1 to {}", k.name, k.size, name, axis.size,
           context.names[0], axis.size);
  if (k.name != name) refuse_axis(context, 0, k.name);
  axis = k;
  return {result};
}

Types infer_cumulative_sum(const InferContext& context) {
  refuse_maximum(context);
  check_ordered(context);
  return {context.inputs[0]};
}

Tensors decompose_sort(const Node& node, std::span<const Tensor> inputs) {
  return {pick(inputs[0], inputs[1], node.attributes.get(key::kAxis))};
}

// Picks by the inverse of the permutation, its argsort; this is faster than adding to zeros.
Tensors sort_vjp(const VjpContext& c) {
  const std::string& axis = c.node.attributes.get(key::kAxis);
  return {pick(c.cotangents[0], argsort(c.inputs[1], axis), axis), Tensor()};
}

Tensors cumulative_sum_vjp(const VjpContext& c) {
  const Attributes& attributes = c.node.attributes;
  return {cumulative_sum(c.cotangents[0], attributes.get(key::kAxis),
                         {.exclusive = c.node.attributes.get(key::kExclusive),
                          .reverse = !c.node.attributes.get(key::kReverse)})};
}

// Returns the comparisons of a merge sort, n·log2(n) for each row.
double sort_flops(const Graph& graph, const Node& node) {
  const Type& x = graph.type(node.inputs[0]);
  const int64_t size = x.axis(node.attributes.get(key::kAxis)).size;
  const int steps = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(size - 1, 1)));
  return steps * static_cast<double>(x.elements());
}

Tensor trace_argsort(const OpDef& op, const Operand& x, std::string_view axis, SortOrder order,
                     Attributes attributes) {
  attributes.set(key::kAxis, axis);
  attributes.set(key::kDescending, order == SortOrder::kDescending);
  return trace_unary(op, x, std::move(attributes));
}

}  // namespace

const Op kArgsortOp{
    {.name = "argsort", .op_class = OpClass::kOther, .infer = infer_argsort, .flops = sort_flops}};
const Op kSortOp{{.name = "sort",
                  .op_class = OpClass::kOther,
                  .infer = infer_sort,
                  .vjp = sort_vjp,
                  .decomposition = decompose_sort,
                  .flops = no_flops}};
const Op kTopKOp{{.name = "top_k",
                  .op_class = OpClass::kOther,
                  .infer = infer_top_k,
                  .flops = flops_per_element<2>}};
const Op kCumulativeSumOp{{.name = "cumulative_sum",
                           .op_class = OpClass::kOther,
                           .infer = infer_cumulative_sum,
                           .vjp = cumulative_sum_vjp,
                           .flops = flops_per_element<1>}};

Tensor argsort(Operand x, std::string_view axis, SortOrder order) {
  return trace_argsort(kArgsortOp, x, axis, order, {});
}

Tensor sort(Operand x, std::string_view axis, SortOrder order) {
  const Tensor positions = argsort(x, axis, order);
  return trace_op(kSortOp, {x.tensor, positions}, {{key::kAxis, axis}}, x.site);
}

TopK top_k(Operand x, std::string_view axis, const Axis& k) {
  if (!k.split.empty()) {
    const ErrorPrefix where(x.site.text());
    fail("top_k: the new axis {} is split; expected {}={}, unsplit", k.text(), k.name, k.size);
  }
  const Tensor indices = trace_argsort(kTopKOp, x, axis, SortOrder::kDescending,
                                       {{key::kK, k.name}, {key::kSize, k.size}});
  return {pick(x, {indices, x.site}, axis), indices};
}

Tensor argmax(Operand x, std::string_view axis) {
  const Attributes one = {{key::kK, axis}, {key::kSize, 1}};
  const Tensor first = trace_argsort(kTopKOp, x, axis, SortOrder::kDescending, one);
  const Tensor number = cast({first, x.site}, DType::kF32);  // Backends add no integers.
  return cast({reduce_sum({number, x.site}, axis), x.site}, DType::kI32);
}

Tensor cumulative_sum(Operand x, std::string_view axis, const CumulativeSumOptions& options) {
  return trace_op(
      kCumulativeSumOp, {x.tensor},
      {{key::kAxis, axis}, {key::kExclusive, options.exclusive}, {key::kReverse, options.reverse}},
      x.site);
}

}  // namespace tessera
