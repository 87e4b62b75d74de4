// SPDX-License-Identifier: Apache-2.0
#include "core/ops/grouped_product.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

constexpr size_t kIds = 2;  // Index of the operand of ids, in both ops.

// Checks that operand `i` has some axes of ids, in their order, and then one of its own.
void check_rows(const InferContext& context, size_t i) {
  const Type &rows = context.inputs[i], &ids = context.inputs[kIds];
  check_agreement(context, i, kIds);
  Names expected;
  for (const std::string& name : ids.names())
    if (rows.has(name)) expected.push_back(name);
  Names own = rows.names();
  const bool has_own = !own.empty() && !ids.has(own.back());
  if (has_own) own.pop_back();
  if (has_own && own == expected) return;
  refuse(context,
         "{} is {}, expected axes among [{}] of {} in this order, then one more; transpose it or "
         "merge_axes",
         context.names[i], rows.text(), joined(ids.names()), context.names[kIds]);
}

Types with_partial(const InferContext& context, Type result, Partial partial) {
  result.partial = std::move(partial);
  check_mesh_axes_once(context, result);
  return {result};
}

// Attribute kAxis is the first axis of weights, kContractedAxis one of the two others.
Types infer_grouped_product(const InferContext& context) {
  const Type &weights = context.inputs[0], &rows = context.inputs[1], &ids = context.inputs[kIds];
  check_ids(context, kIds);
  Partial partial = partial_of_product(context);
  check_floating_operand(context, 0);
  check_dtypes_agree(context, 0, 1);
  check_rows(context, 1);
  const Axis& axis = axis_of(context, 0, context.attributes.get(key::kAxis));
  const Axis& contracted = axis_of(context, 0, context.attributes.get(key::kContractedAxis));
  if (weights.rank() != 3 || &axis != weights.axes.data() || &contracted == &axis)
    refuse(context, "{} is {}, expected the axes [{} {}] and one more, {} first; transpose it",
           context.names[0], weights.text(), axis.name, contracted.name, axis.name);
  if (rows.axes.back().name != contracted.name)
    refuse(context, "{} is not the last axis of {}, which is {}; transpose it", contracted.name,
           context.names[1], rows.text());
  check_agreement(context, 0, 1);
  for (const Axis& other : ids.axes) refuse_axis(context, 0, other.name);
  check_one_hot(context, axis, kIds);
  Type result{weights.dtype, ids.axes, {}};
  result.axes.push_back(weights.axes[contracted.name == weights.axes[1].name ? 2 : 1]);
  partial = plus_split(context, std::move(partial), axis.split);
  return with_partial(context, result, plus_split(context, std::move(partial), contracted.split));
}

// new_axis() replaces the axes of ids.
Types infer_grouped_outer_product(const InferContext& context) {
  const Type &a = context.inputs[0], &b = context.inputs[1], &ids = context.inputs[kIds];
  const Axis axis = new_axis(context.attributes);
  check_ids(context, kIds);
  Partial partial = partial_of_product(context);
  check_floating_operand(context, 0);
  check_dtypes_agree(context, 0, 1);
  check_rows(context, 0);
  check_rows(context, 1);
  for (const size_t i : {0, 1}) refuse_axis(context, i, axis.name);
  refuse_axis(context, kIds, axis.name);
  refuse_axis(context, 1, a.axes.back().name);
  check_one_hot(context, axis, kIds);
  for (const Axis& summed : ids.axes)
    partial = plus_split(context, std::move(partial), summed.split);
  return with_partial(context, {a.dtype, {axis, a.axes.back(), b.axes.back()}, {}},
                      std::move(partial));
}

// Returns one_hot of ids, at the place of the node's shard of the axis.
Tensor chosen_of(const Node& node, const Tensor& ids, const Axis& axis, DType dtype) {
  Attributes attributes = axis_attributes(axis);
  attributes.set(key::kDtype, dtype);
  if (node.attributes.has(key::kOrigin)) {
    std::vector<int64_t> origin(static_cast<size_t>(ids.type().rank()), 0);
    origin.push_back(origin_along(node.attributes, 0));
    attributes.set(key::kOrigin, std::move(origin));
  }
  return trace_op(kOneHotOp, {ids}, attributes, node.site);
}

Tensor contract(const Node& node, const Tensor& a, const Tensor& b, Names contracted,
                Names output) {
  return trace_op(kEinsumOp, {a, b},
                  {{key::kContracted, std::move(contracted)}, {key::kOutput, std::move(output)}},
                  node.site);
}

// Decomposes into one product with all matrices: each row is put at the place of its expert, zeros
// at the others, and the contracted axes are the experts and the given one.
Tensors decompose_grouped_product(const Node& node, std::span<const Tensor> inputs) {
  const Tensor &weights = inputs[0], &rows = inputs[1], &ids = inputs[kIds];
  const Axis& axis = weights.type().axis(node.attributes.get(key::kAxis));
  const Tensor spread = mul(chosen_of(node, ids, axis, rows.dtype()), rows);
  Names output = ids.type().names();
  output.push_back(names_beside(weights.type(), spread.type()).back());
  return {contract(node, spread, weights, {axis.name, rows.type().axes.back().name},
                   std::move(output))};
}

// Decomposes: the operand with more axes of ids is spread over the experts, and first summed over
// those that the other lacks.
Tensors decompose_grouped_outer_product(const Node& node, std::span<const Tensor> inputs) {
  const bool swapped = inputs[1].type().rank() > inputs[0].type().rank();
  const Tensor &rows = inputs[swapped ? 1 : 0], &other = inputs[swapped ? 0 : 1];
  const Tensor& ids = inputs[kIds];
  const Axis axis{node.attributes.get(key::kAxis), node.attributes.get(key::kSize), {}};
  Tensor spread = mul(chosen_of(node, ids, axis, rows.dtype()), rows);
  const Names summed = names_beside(ids.type(), other.type());
  if (!summed.empty()) spread = reduce_sum(spread, joined(summed));
  Names kept = other.type().names();
  kept.pop_back();
  return {
      contract(node, other, spread, std::move(kept),
               {axis.name, inputs[0].type().axes.back().name, inputs[1].type().axes.back().name})};
}

// Sums over the axes of ids that the operand lacks.
Tensor summed_to(const Tensor& cotangent, const Tensor& operand) {
  const Names summed = names_beside(cotangent.type(), operand.type());
  return summed.empty() ? cotangent : reduce_sum(cotangent, joined(summed));
}

Tensors grouped_product_vjp(const VjpContext& c) {
  const Tensor &weights = c.inputs[0], &rows = c.inputs[1], &ids = c.inputs[kIds];
  const Tensor& dy = c.cotangents[0];
  const std::string made = dy.type().axes.back().name;
  const Tensor by_row =
      grouped_product(dy, weights, ids, c.node.attributes.get(key::kAxis), over(made));
  const bool made_last = weights.type().axes.back().name == made;
  const Tensor by_matrix = grouped_outer_product(made_last ? rows : dy, made_last ? dy : rows, ids,
                                                 weights.type().axes.front());
  return {by_matrix, summed_to(by_row, rows), Tensor()};
}

Tensors grouped_outer_product_vjp(const VjpContext& c) {
  const Tensor& dy = c.cotangents[0];
  const auto cotangent = [&](size_t operand) {
    const Tensor& other = c.inputs[1 - operand];
    const Tensor by_row =
        grouped_product(other, dy, c.inputs[kIds], c.node.attributes.get(key::kAxis),
                        {{other.type().axes.back().name}});
    return summed_to(by_row, c.inputs[operand]);
  };
  return {cotangent(0), cotangent(1), Tensor()};
}

// Returns a shard's share of the rows, on average.
double share_of_rows(const Node& node, const Axis& axis) {
  if (!node.attributes.has(key::kExtent)) return 1.0;
  return static_cast<double>(axis.size) / static_cast<double>(node.attributes.get(key::kExtent)[0]);
}

// Returns the rows that are multiplied, times the elements of one matrix.
double grouped_flops(const Graph& graph, const Node& node) {
  const Type& matrices =
      graph.type(node.op == &kGroupedProductOp ? node.inputs[0] : node.outputs[0]);
  const Axis& axis = matrices.axes.front();
  const double rows = static_cast<double>(graph.type(node.inputs[kIds]).elements());
  return 2.0 * rows * share_of_rows(node, axis) * static_cast<double>(matrices.elements()) /
         static_cast<double>(axis.size);
}

}  // namespace

const Op kGroupedProductOp{{.name = "grouped_product",
                            .op_class = OpClass::kContraction,
                            .infer = infer_grouped_product,
                            .vjp = grouped_product_vjp,
                            .decomposition = decompose_grouped_product,
                            .flops = grouped_flops,
                            .anchor = ShardAnchor::kFirstOperand}};
const Op kGroupedOuterProductOp{{.name = "grouped_outer_product",
                                 .op_class = OpClass::kContraction,
                                 .infer = infer_grouped_outer_product,
                                 .vjp = grouped_outer_product_vjp,
                                 .decomposition = decompose_grouped_outer_product,
                                 .flops = grouped_flops,
                                 .anchor = ShardAnchor::kResult,
                                 .axis_size = {key::kAxis, key::kSize}}};

Tensor grouped_product(Operand rows, Operand weights, Operand ids, std::string_view axis,
                       const Over& contracted) {
  if (contracted.axes.size() != 1)
    fail("{}: grouped_product: expected one contracted axis, got [{}]; merge_axes them",
         rows.site.text(), joined(contracted.axes));
  return trace_op(kGroupedProductOp, {weights.tensor, rows.tensor, ids.tensor},
                  {{key::kAxis, axis}, {key::kContractedAxis, contracted.axes[0]}}, rows.site);
}

Tensor grouped_outer_product(Operand a, Operand b, Operand ids, Axis axis) {
  return trace_op(kGroupedOuterProductOp, {a.tensor, b.tensor, ids.tensor}, axis_attributes(axis),
                  a.site);
}

}  // namespace tessera
