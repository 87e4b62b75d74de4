// SPDX-License-Identifier: Apache-2.0
#include "core/ops/leaves.h"

#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

Types infer_own_leaf(const InferContext& context) {
  refuse_partial(context);
  const Axis& leaf = axis_of(context, 0, context.attributes.get(key::kAxis));
  const int64_t devices = context.mesh.size_along(leaf.split);
  if (leaf.size != devices)
    refuse(context, "{} has {} leaves for {} devices; expected one for each", context.names[0],
           leaf.size, devices);
  return {without_axis(context.inputs[0], leaf.name, context.inputs[0].dtype)};
}

// On one device the axis has size 1.
Tensors decompose_own_leaf(const Node& node, std::span<const Tensor> inputs) {
  const Tensor& x = inputs[0];
  const std::string& leaf = node.attributes.get(key::kAxis);
  const std::vector<std::string> names = x.type().names();
  if (names.size() == 1) return {reduce_sum(x, leaf)};
  const auto place = std::ranges::find(names, leaf);
  const std::string other = place + 1 == names.end() ? *(place - 1) : *(place + 1);
  return {place + 1 == names.end() ? merge_axes(x, other, leaf, other)
                                   : merge_axes(x, leaf, other, other)};
}

// Returns a type without the splits over these mesh axes.
Type unsplit_over(Type type, const std::vector<std::string>& mesh_axes) {
  for (Axis& axis : type.axes)
    std::erase_if(axis.split, [&](const auto& each) { return contains(mesh_axes, each); });
  return type;
}

Types infer_add_leaves(const InferContext& context) {
  refuse_partial(context);
  const std::vector<std::string>& mesh_axes = context.attributes.get(key::kMeshAxes);
  const Type &sum = context.inputs[0], &term = context.inputs[1];
  check_same_dtype(context);
  check_same_axes(context, 1, unsplit_over(sum, mesh_axes).axes);
  for (const Axis& axis : sum.axes) {
    bool is_inner = false;
    for (const std::string& each : axis.split) {
      const bool is_leaf = contains(mesh_axes, each);
      if (is_inner && !is_leaf)
        refuse(context, "{} of {} is split over leaves outside of {}", axis.text(),
               context.names[0], each);
      is_inner = is_inner || is_leaf;
    }
  }
  CHECK(term.rank() == sum.rank());
  return {sum};
}

Types infer_add_exchanged(const InferContext& context) {
  check_same_dtype(context);
  Type sum = context.inputs[1];
  sum = without_axis(sum, kLeafAxis, sum.dtype);
  check_same_axes(context, 0, sum.axes);
  return {sum};
}

Tensors decompose_add_exchanged(const Node& node, std::span<const Tensor> inputs) {
  Tensor sum = inputs[0];
  for (const int64_t place : node.attributes.get(key::kPlaces)) {
    const Tensor leaf = slice(inputs[1], kLeafAxis, place, place + 1);
    sum = sum + decompose_own_leaf({.attributes = {{key::kAxis, kLeafAxis}}}, {&leaf, 1})[0];
  }
  return {sum};
}

}  // namespace

const Op kOwnLeafOp{{.name = "own_leaf",
                     .op_class = OpClass::kDataMovement,
                     .infer = infer_own_leaf,
                     .decomposition = decompose_own_leaf,
                     .flops = no_flops}};
const Op kAddLeavesOp{{.name = "add_leaves", .infer = infer_add_leaves}};
const Op kAddExchangedOp{{.name = "add_exchanged",
                          .infer = infer_add_exchanged,
                          .decomposition = decompose_add_exchanged}};

Tensor own_leaf(Operand x, std::string_view axis) {
  return trace_unary(kOwnLeafOp, x, {{key::kAxis, axis}});
}

Tensor add_leaves(Operand sum, const Tensor& term, const std::vector<std::string>& mesh_axes) {
  return trace_op(kAddLeavesOp, {sum.tensor, term}, {{key::kMeshAxes, mesh_axes}}, sum.site);
}

}  // namespace tessera
