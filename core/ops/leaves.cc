// SPDX-License-Identifier: Apache-2.0
#include "core/ops/leaves.h"

#include "core/graph/layer_pieces.h"
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
  const Axis& leaf = axis_of(context, 0, kLeafAxis);
  const int64_t devices = context.mesh.size_along(leaf.split);
  if (leaf.size != devices)
    refuse(context, "{} has {} leaves for {} devices; expected one for each", context.names[0],
           leaf.size, devices);
  return {without_axis(context.inputs[0], leaf.name, context.inputs[0].dtype)};
}

// On one device the axis has size 1.
Tensor without_leaf_axis(const Tensor& x) {
  const std::vector<std::string> names = x.type().names();
  if (names.size() == 1) {
    const bool adds = is_floating(x.dtype());  // Kernels add floats.
    const Tensor sum = reduce_sum(adds ? x : cast(x, DType::kF32), kLeafAxis);
    return adds ? sum : cast(sum, x.dtype());
  }
  if (names.back() != kLeafAxis) {
    const std::string& next = *(std::ranges::find(names, kLeafAxis) + 1);
    return merge_axes(x, kLeafAxis, next, next);
  }
  const std::string& before = names[names.size() - 2];
  return merge_axes(x, before, kLeafAxis, before);
}

Tensors decompose_own_leaf(const Node&, std::span<const Tensor> inputs) {
  return {without_leaf_axis(inputs[0])};
}

// The axis of leaves leads, behind that of stacked layers.
size_t place_of_leaves(const Type& x) {
  return x.rank() > 0 && x.axes[0].name == kLayersAxis ? 1 : 0;
}

Types infer_all_leaves(const InferContext& context) {
  refuse_partial(context);
  const std::vector<std::string>& split = context.attributes.get(key::kSplit);
  Type type = context.inputs[0];
  const auto place = type.axes.begin() + static_cast<int64_t>(place_of_leaves(type));
  type.axes.insert(place, {std::string(kLeafAxis), context.mesh.size_along(split), split});
  check_mesh_axes_once(context, type);
  return {type};
}

Tensors decompose_all_leaves(const Node&, std::span<const Tensor> inputs) {
  const Tensor& x = inputs[0];
  const size_t place = place_of_leaves(x.type());
  const std::vector<Axis>& axes = x.type().axes;
  const Axis leaf{std::string(kLeafAxis), 1, {}};
  if (place < axes.size()) return {split_axis(x, axes[place].name, leaf, axes[place])};
  return {broadcast(x, {leaf}, place == 0 ? leaf.name : axes[0].name + " " + leaf.name)};
}

Types infer_add_leaves(const InferContext& context) {
  refuse_partial(context);
  check_same_dtype(context);
  unsplit_axis_of(context, 1, kLeafAxis);
  const Type leaf = without_axis(context.inputs[1], kLeafAxis, context.inputs[1].dtype);
  check_same_axes(context, 0, leaf.axes);
  return {leaf};
}

Tensors decompose_add_leaves(const Node&, std::span<const Tensor> inputs) {
  Tensor sum = inputs[0];
  for (int64_t i = 0; i < inputs[1].size(kLeafAxis); ++i)
    sum = sum + without_leaf_axis(slice(inputs[1], kLeafAxis, i, i + 1));
  return {sum};
}

}  // namespace

const Op kOwnLeafOp{{.name = "own_leaf",
                     .op_class = OpClass::kDataMovement,
                     .infer = infer_own_leaf,
                     .decomposition = decompose_own_leaf,
                     .flops = no_flops}};
const Op kAllLeavesOp{{.name = "all_leaves",
                       .op_class = OpClass::kDataMovement,
                       .infer = infer_all_leaves,
                       .decomposition = decompose_all_leaves,
                       .flops = no_flops,
                       .linear = true}};
const Op kAddLeavesOp{{.name = "add_leaves",
                       .op_class = OpClass::kReduction,
                       .infer = infer_add_leaves,
                       .decomposition = decompose_add_leaves}};

Type unsplit_over(Type type, const std::vector<std::string>& mesh_axes) {
  for (Axis& axis : type.axes)
    std::erase_if(axis.split, [&](const auto& each) { return contains(mesh_axes, each); });
  return type;
}

Tensor own_leaf(Operand x) { return trace_unary(kOwnLeafOp, x); }

Tensor all_leaves(Operand x, const std::vector<std::string>& mesh_axes) {
  return trace_unary(kAllLeavesOp, x, {{key::kSplit, mesh_axes}});
}

Tensor add_leaves(Operand sum, Operand x) { return trace_binary(kAddLeavesOp, sum, x); }

}  // namespace tessera
