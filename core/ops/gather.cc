// SPDX-License-Identifier: Apache-2.0
#include "core/ops/gather.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

Types infer_gather(const InferContext& context) {
  const Type &table = context.inputs[0], &ids = context.inputs[1];
  check_ids(context, 1);
  const Partial partial = partial_of_product(context);
  const Axis& axis = axis_of(context, 0, context.attributes.get<std::string>("axis"));
  if (table.axes.front().name != axis.name) {
    refuse(context, fmt::format("{} must come first in {}, which is {}; transpose it", axis.name,
                                context.names[0], table.text()));
  }
  for (const Axis& other : ids.axes) {
    if (!table.has(other.name)) continue;
    refuse(context, fmt::format("{} and {} both have axis {}; rename one", context.names[0],
                                context.names[1], other.name));
  }
  check_one_hot(context, axis, 1);
  Type result{table.dtype, ids.axes, plus_split(context, partial, axis.split)};
  result.axes.insert(result.axes.end(), table.axes.begin() + 1, table.axes.end());
  check_mesh_axes_once(context, result);
  return {result};
}

// Attributes "axis", "size" and "split": the axis that replaces the axes of ids.
Types infer_scatter_add(const InferContext& context) {
  const Type &updates = context.inputs[0], &ids = context.inputs[1];
  const Axis axis{context.attributes.get<std::string>("axis"),
                  context.attributes.get<int64_t>("size"), context.attributes.get<Names>("split")};
  check_ids(context, 1);
  Partial partial = partial_of_product(context);
  check_floating_operand(context, 0);
  for (size_t i = 0; i < ids.axes.size(); ++i) {
    if (i < updates.axes.size() && updates.axes[i].name == ids.axes[i].name) continue;
    refuse(context,
           fmt::format("{} is {}, expected to begin with the axes [{}] of {}", context.names[0],
                       updates.text(), joined(ids.names()), context.names[1]));
  }
  check_agreement(context, 0, 1);
  check_one_hot(context, axis, 1);
  Type result{updates.dtype, {axis}, {}};
  for (const Axis& summed : ids.axes) partial = plus_split(context, partial, summed.split);
  result.partial = partial;
  result.axes.insert(result.axes.end(), updates.axes.begin() + ids.rank(), updates.axes.end());
  check_mesh_axes_once(context, result);
  return {result};
}

Types infer_pick(const InferContext& context) {
  const Type &x = context.inputs[0], &ids = context.inputs[1];
  check_ids(context, 1);
  const Partial partial = partial_of_product(context);
  const Axis& axis = axis_of(context, 0, context.attributes.get<std::string>("axis"));
  Type result = without_axis(x, axis.name, x.dtype);
  result.partial = plus_split(context, partial, axis.split);
  if (result.names() != ids.names()) {
    refuse(context,
           fmt::format("{} is {} and {} is {}; expected the same axes in the same order, "
                       "without {}",
                       context.names[0], x.text(), context.names[1], ids.text(), axis.name));
  }
  check_agreement(context, 0, 1);
  return {result};
}

Tensors gather_vjp(const VjpContext& c) {
  const Axis& axis = c.inputs[0].type().axes.front();
  return {scatter_add(c.cotangents[0], c.inputs[1], axis), Tensor()};
}

Tensors scatter_add_vjp(const VjpContext& c) {
  return {gather(c.cotangents[0], c.inputs[1], c.node.attributes.get<std::string>("axis")),
          Tensor()};
}

Tensors pick_vjp(const VjpContext& c) {
  const Tensor& x = c.inputs[0];
  const Axis& axis = x.type().axis(c.node.attributes.get<std::string>("axis"));
  const Tensor chosen = one_hot(c.inputs[1], axis, x.dtype());
  return {match(mul(chosen, c.cotangents[0]), x), Tensor()};
}

}  // namespace

const Op kGatherOp{{.name = "gather",
                    .op_class = OpClass::kDataMovement,
                    .infer = infer_gather,
                    .vjp = gather_vjp,
                    .flops = no_flops,
                    .bytes = selected_bytes,
                    .anchor = ShardAnchor::kFirstOperand}};
const Op kScatterAddOp{{.name = "scatter_add",
                        .op_class = OpClass::kOther,
                        .infer = infer_scatter_add,
                        .vjp = scatter_add_vjp,
                        .flops = flops_per_element<1>,
                        .anchor = ShardAnchor::kResult,
                        .axis_size = {.axis = "axis", .size = "size"}}};
const Op kPickOp{{.name = "pick",
                  .op_class = OpClass::kDataMovement,
                  .infer = infer_pick,
                  .vjp = pick_vjp,
                  .flops = no_flops,
                  .bytes = selected_bytes,
                  .anchor = ShardAnchor::kFirstOperand}};

Tensor gather(Operand table, Operand ids, std::string_view axis) {
  return trace_op(kGatherOp, {table.tensor, ids.tensor}, {{"axis", std::string(axis)}}, table.site);
}

Tensor scatter_add(Operand updates, Operand ids, Axis axis) {
  return trace_op(kScatterAddOp, {updates.tensor, ids.tensor},
                  {{"axis", axis.name}, {"size", axis.size}, {"split", axis.split}}, updates.site);
}

Tensor pick(Operand x, Operand ids, std::string_view axis) {
  return trace_op(kPickOp, {x.tensor, ids.tensor}, {{"axis", std::string(axis)}}, x.site);
}

}  // namespace tessera
