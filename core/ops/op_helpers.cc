// SPDX-License-Identifier: Apache-2.0
#include "core/ops/op_helpers.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"

namespace tessera {

double no_flops(const Graph&, const Node&) { return 0.0; }

OpDef elementwise(std::string_view name, decltype(OpDef::infer) infer, decltype(OpDef::vjp) vjp,
                  const ElementFunction& element) {
  return {.name = name,
          .op_class = OpClass::kElementwise,
          .infer = infer,
          .vjp = vjp,
          .element = element};
}

OpDef linear_view(OpDef op) {
  op.linear_view = true;
  return op;
}

Tensor trace_unary(const OpDef& op, const Operand& x) {
  return trace_op(op, {x.tensor}, {}, x.site);
}

Tensor trace_binary(const OpDef& op, const Operand& a, const Operand& b) {
  return trace_op(op, {a.tensor, b.tensor}, {}, a.site);
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<std::string> names_at(const Operand& operand, std::string_view text) {
  const ErrorPrefix where(operand.site.text());
  return parse_names(text);
}

Types infer_linear(const InferContext& context) {
  refuse_maximum(context);
  return {context.inputs[0]};
}

Types infer_nonlinear(const InferContext& context) {
  refuse_partial(context);
  check_same_dtype(context);
  const Type result = make_type(context.inputs[0].dtype, aligned_axes(context));
  check_mesh_axes_once(context, result);
  return {result};
}

Types infer_nonlinear_floating(const InferContext& context) {
  check_floating(context);
  return infer_nonlinear(context);
}

Types infer_gradient(const InferContext& context) {
  refuse_partial(context, 0);
  const Partial partial = partial_of_product(context);
  check_floating(context);
  check_same_dtype(context);
  const Type result = {context.inputs[0].dtype, aligned_axes(context), partial};
  check_mesh_axes_once(context, result);
  return {result};
}

Type without_axis(Type type, std::string_view axis, DType dtype) {
  type.dtype = dtype;
  type.axes.erase(type.axes.begin() + type.find(axis));
  return type;
}

const Axis& unsplit_last_axis_of(const InferContext& context, size_t i, std::string_view name) {
  const Axis& axis = unsplit_axis_of(context, i, name);
  if (context.inputs[i].axes.back().name != name) {
    refuse(context, fmt::format("{} is not the last axis of {}, which is {}; transpose it", name,
                                context.names[i], context.inputs[i].text()));
  }
  return axis;
}

void check_same_axes(const InferContext& context, size_t i, const std::vector<Axis>& expected) {
  const Type& type = context.inputs[i];
  if (type.axes == expected) return;
  Type wanted = type;
  wanted.axes = expected;
  Type laid_out = type;
  for (size_t axis = 0; axis < std::min(expected.size(), type.axes.size()); ++axis)
    laid_out.axes[axis].split = expected[axis].split;
  const bool only_layout = laid_out.axes == expected;
  refuse(context, fmt::format("{} is {}, expected {}{}", context.names[i], type.text_sized(),
                              wanted.text_sized(),
                              only_layout ? fmt::format("; reshard {} to \"{}\"", context.names[i],
                                                        make_type(type.dtype, expected).layout())
                                          : ""));
}

Type sum_to_axis_type(const InferContext& context, const Type& summed, std::string_view axis,
                      DType dtype) {
  Type type = make_type(dtype, {summed.axis(axis)});
  std::vector<std::string> split;
  for (const Axis& other : summed.axes) {
    if (other.name == axis) continue;
    split = mesh_union(context.mesh, split, other.split);
  }
  if (!split.empty()) type.partial = {PartialKind::kSum, split};
  return type;
}

}  // namespace tessera
