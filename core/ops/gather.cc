// SPDX-License-Identifier: Apache-2.0
#include "core/ops/gather.h"

#include <fmt/format.h>

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

constexpr AttributeName<int64_t> kBatchAxes{"batch_axes"};
using Names = std::vector<std::string>;

// Returns the number of batch axes: leading axes of both table and ids. Error if they share others.
size_t batch_axes_of(const InferContext& context) {
  const Type &table = context.inputs[0], &ids = context.inputs[1];
  size_t count = 0;
  while (count < table.axes.size() && count < ids.axes.size() &&
         table.axes[count].name == ids.axes[count].name)
    ++count;
  for (size_t i = count; i < ids.axes.size(); ++i) {
    if (!table.has(ids.axes[i].name)) continue;
    refuse(context,
           "{} and {} both have axis {}, which is not a batch axis (first in both); "
           "rename one",
           context.names[0], context.names[1], ids.axes[i].name);
  }
  return count;
}

Types infer_gather(const InferContext& context) {
  const Type &table = context.inputs[0], &ids = context.inputs[1];
  check_ids(context, 1);
  const Partial partial = partial_of_product(context);
  const Axis& axis = axis_of(context, 0, context.attributes.get(key::kAxis));
  const size_t batch_axes = batch_axes_of(context);
  if (batch_axes == table.axes.size() || table.axes[batch_axes].name != axis.name) {
    const std::string place = batch_axes == 0 ? "come first" : "follow the batch axes";
    refuse(context, "{} must {} in {}, which is {}; transpose it", axis.name, place,
           context.names[0], table.text());
  }
  check_agreement(context, 0, 1);
  check_one_hot(context, axis, 1);
  Type result{table.dtype, ids.axes, plus_split(context, partial, axis.split)};
  const auto rest = table.axes.begin() + static_cast<int64_t>(batch_axes) + 1;
  result.axes.insert(result.axes.end(), rest, table.axes.end());
  check_mesh_axes_once(context, result);
  return {result};
}

// new_axis() replaces the axes of ids after the first kBatchAxes.
Types infer_scatter_add(const InferContext& context) {
  const Type &updates = context.inputs[0], &ids = context.inputs[1];
  const int64_t batch_axes = context.attributes.get(kBatchAxes);
  const Axis axis = new_axis(context.attributes);
  check_ids(context, 1);
  Partial partial = partial_of_product(context);
  check_floating_operand(context, 0);
  for (size_t i = 0; i < ids.axes.size(); ++i) {
    if (i < updates.axes.size() && updates.axes[i].name == ids.axes[i].name) continue;
    refuse(context, "{} is {}, expected to begin with the axes [{}] of {}", context.names[0],
           updates.text(), joined(ids.names()), context.names[1]);
  }
  check_agreement(context, 0, 1);
  check_one_hot(context, axis, 1);
  const auto summed = ids.axes.begin() + batch_axes;
  Type result{updates.dtype, {ids.axes.begin(), summed}, {}};
  for (auto each = summed; each != ids.axes.end(); ++each)
    partial = plus_split(context, partial, each->split);
  result.partial = partial;
  result.axes.push_back(axis);
  result.axes.insert(result.axes.end(), updates.axes.begin() + ids.rank(), updates.axes.end());
  check_mesh_axes_once(context, result);
  return {result};
}

// Checks that x and ids agree in their axes but those at `position`, of which ids may lack theirs.
void check_other_axes(const InferContext& context, size_t position, std::string_view replaced) {
  const Type &x = context.inputs[0], &ids = context.inputs[1];
  const auto without = [&](Type type) {
    if (type.rank() == x.rank())
      type.axes.erase(type.axes.begin() + static_cast<int64_t>(position));
    return type;
  };
  const Type others[] = {without(x), without(ids)};
  if (others[0].names() != others[1].names())
    refuse(context, "{} is {} and {} is {}; expected the same axes in the same order, {}",
           context.names[0], x.text(), context.names[1], ids.text(), replaced);
  InferContext rest = context;
  rest.inputs = others;
  check_agreement(rest, 0, 1);
}

Types infer_pick(const InferContext& context) {
  const Type &x = context.inputs[0], &ids = context.inputs[1];
  check_ids(context, 1);
  const Partial partial = partial_of_product(context);
  const Axis& axis = axis_of(context, 0, context.attributes.get(key::kAxis));
  check_other_axes(context, static_cast<size_t>(x.find(axis.name)),
                   fmt::format("without {} or with another axis in its place", axis.name));
  check_one_hot(context, axis, 1);
  Type result{x.dtype, ids.axes, plus_split(context, partial, axis.split)};
  check_mesh_axes_once(context, result);
  return {result};
}

// new_axis() replaces kK.
Types infer_scatter_along(const InferContext& context) {
  const Type& x = context.inputs[0];
  const Axis axis = new_axis(context.attributes);
  check_ids(context, 1);
  Partial partial = partial_of_product(context);
  check_floating_operand(context, 0);
  const Axis& k = axis_of(context, 0, context.attributes.get(key::kK));
  if (axis.name != k.name) refuse_axis(context, 0, axis.name);
  if (x.names() != context.inputs[1].names())
    refuse(context, "{} is {} and {} is {}; expected the same axes in the same order",
           context.names[0], x.text(), context.names[1], context.inputs[1].text());
  check_agreement(context, 0, 1);
  check_one_hot(context, axis, 1);
  Type result{x.dtype, x.axes, plus_split(context, partial, k.split)};
  result.axes[static_cast<size_t>(x.find(k.name))] = axis;
  check_mesh_axes_once(context, result);
  return {result};
}

Tensors gather_vjp(const VjpContext& c) {
  const Type& table = c.inputs[0].type();
  const int64_t axis = table.find(c.node.attributes.get(key::kAxis));
  return {scatter_add(c.cotangents[0], c.inputs[1], table.axes[static_cast<size_t>(axis)], axis),
          Tensor()};
}

Tensors scatter_add_vjp(const VjpContext& c) {
  return {gather(c.cotangents[0], c.inputs[1], c.node.attributes.get(key::kAxis)), Tensor()};
}

Tensors pick_vjp(const VjpContext& c) {
  const Tensor &x = c.inputs[0], &ids = c.inputs[1];
  const Axis& axis = x.type().axis(c.node.attributes.get(key::kAxis));
  if (ids.type().rank() == x.type().rank()) {
    const Axis& k = ids.type().axes[static_cast<size_t>(x.type().find(axis.name))];
    return {scatter_along(c.cotangents[0], ids, k.name, axis), Tensor()};
  }
  const Tensor chosen = one_hot(c.inputs[1], axis, x.dtype());
  return {match(mul(chosen, c.cotangents[0]), x), Tensor()};
}

Tensors scatter_along_vjp(const VjpContext& c) {
  return {pick(c.cotangents[0], c.inputs[1], c.node.attributes.get(key::kAxis)), Tensor()};
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
                        .axis_size = {key::kAxis, key::kSize}}};
const Op kPickOp{{.name = "pick",
                  .op_class = OpClass::kDataMovement,
                  .infer = infer_pick,
                  .vjp = pick_vjp,
                  .flops = no_flops,
                  .bytes = selected_bytes,
                  .anchor = ShardAnchor::kFirstOperand}};
const Op kScatterAlongOp{{.name = "scatter_along",
                          .op_class = OpClass::kOther,
                          .infer = infer_scatter_along,
                          .vjp = scatter_along_vjp,
                          .flops = flops_per_element<1>,
                          .anchor = ShardAnchor::kResult,
                          .axis_size = {key::kAxis, key::kSize}}};

Tensor gather(Operand table, Operand ids, std::string_view axis) {
  return trace_op(kGatherOp, {table.tensor, ids.tensor}, {{key::kAxis, axis}}, table.site);
}

Tensor scatter_add(Operand updates, Operand ids, Axis axis, int64_t batch_axes) {
  Attributes attributes = axis_attributes(axis);
  attributes.set(kBatchAxes, batch_axes);
  return trace_op(kScatterAddOp, {updates.tensor, ids.tensor}, std::move(attributes), updates.site);
}

Tensor pick(Operand x, Operand ids, std::string_view axis) {
  return trace_op(kPickOp, {x.tensor, ids.tensor}, {{key::kAxis, axis}}, x.site);
}

Tensor scatter_along(Operand x, Operand ids, std::string_view k, Axis axis) {
  return trace_op(
      kScatterAlongOp, {x.tensor, ids.tensor},
      {{key::kK, k}, {key::kAxis, axis.name}, {key::kSize, axis.size}, {key::kSplit, axis.split}},
      x.site);
}

}  // namespace tessera
