// SPDX-License-Identifier: Apache-2.0
#include "core/ops/op_helpers.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/trace.h"

namespace tessera {

OpDef elementwise(std::string_view name, decltype(OpDef::infer) infer, decltype(OpDef::vjp) vjp,
                  const ElementFunction& element) {
  return {.name = name,
          .op_class = OpClass::kElementwise,
          .infer = infer,
          .vjp = vjp,
          .element = element};
}

double selected_bytes(const Graph& graph, const Node& node) {
  double bytes = 2.0 * static_cast<double>(graph.type(node.outputs[0]).bytes());
  for (size_t i = 1; i < node.inputs.size(); ++i)
    bytes += static_cast<double>(graph.type(node.inputs[i]).bytes());
  return bytes;
}

OpDef linear_view(OpDef op) {
  op.linear_view = true;
  return op;
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<std::string> names_at(const Operand& operand, std::string_view text) {
  const ErrorPrefix where(operand.site.text());
  return parse_names(text);
}

std::vector<std::string> names_beside(const Type& type, const Type& other) {
  std::vector<std::string> names = type.names();
  std::erase_if(names, [&](const std::string& name) { return other.has(name); });
  return names;
}

Types infer_nonlinear(const InferContext& context) {
  refuse_partial(context);
  check_same_dtype(context);
  const Type result = make_type(context.inputs[0].dtype, aligned_axes(context));
  check_mesh_axes_once(context, result);
  return {result};
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

Types infer_fused(const InferContext& context) {
  const Graph& body = *context.bodies[0];
  CHECK(body.inputs().size() == context.inputs.size());
  for (size_t i = 0; i < context.inputs.size(); ++i)
    CHECK(body.type(body.inputs()[i].value) == context.inputs[i], "operand {} of a fused node", i);
  Types types;
  for (const GraphOutput& output : body.outputs()) types.push_back(body.type(output.value));
  return types;
}

void check_floating_operand(const InferContext& context, size_t i) {
  const DType dtype = context.inputs[i].dtype;
  if (is_floating(dtype)) return;
  refuse(context, "{} is {}, expected a floating dtype; cast it", context.names[i],
         dtype_name(dtype));
}

void check_dtypes_agree(const InferContext& context, size_t a, size_t i) {
  const DType expected = context.inputs[a].dtype, dtype = context.inputs[i].dtype;
  if (dtype == expected) return;
  refuse(context, "{} is {}, {} is {}; cast one", context.names[a], dtype_name(expected),
         context.names[i], dtype_name(dtype));
}

void refuse_partial_operand(const InferContext& context, size_t i, std::string_view role) {
  const Partial& partial = context.inputs[i].partial;
  if (!partial) return;
  refuse(context, "{} {} is partial over {}; {}", role, context.names[i],
         mesh_text(partial.mesh_axes), place_hint(context.names[i]));
}

void refuse_axis(const InferContext& context, size_t i, std::string_view name) {
  if (!context.inputs[i].has(name)) return;
  refuse(context, "{} has an axis {} already: it is {}; rename one", context.names[i], name,
         context.inputs[i].text());
}

void check_axis_names(const InferContext& context, size_t i, std::string_view names) {
  const Type& type = context.inputs[i];
  if (joined(type.names()) == names) return;
  refuse(context,
         "{} is {}, expected the axes \"{}\" in this order; rename or "
         "transpose it",
         context.names[i], type.text(), names);
}

void check_ids(const InferContext& context, size_t i) {
  check_dtype(context, i, DType::kI32);
  refuse_partial_operand(context, i, "the index tensor");
}

void check_one_hot(const InferContext& context, const Axis& axis, size_t i) {
  for (const std::string& mesh_axis : axis.split) {
    for (const Axis& other : context.inputs[i].axes) {
      if (!contains(other.split, mesh_axis)) continue;
      refuse(context, "{} {}, {} {}; {}", context.names[0], axis.text(), context.names[i],
             other.text(), place_hint(context.names[0]));
    }
  }
}

Partial plus_split(const InferContext& context, Partial partial,
                   const std::vector<std::string>& split) {
  if (split.empty()) return partial;
  return {PartialKind::kSum, mesh_union(context.mesh, partial.mesh_axes, split)};
}

Axis new_axis(const Attributes& attributes) {
  return {attributes.get(key::kAxis), attributes.get(key::kSize), attributes.get(key::kSplit)};
}

Attributes axis_attributes(const Axis& axis) {
  return {{key::kAxis, axis.name}, {key::kSize, axis.size}, {key::kSplit, axis.split}};
}

Type without_axis(Type type, std::string_view axis, DType dtype) {
  type.dtype = dtype;
  type.axes.erase(type.axes.begin() + type.find(axis));
  return type;
}

const Axis& last_axis_of(const InferContext& context, size_t i, std::string_view name) {
  const Axis& axis = axis_of(context, i, name);
  if (&axis == &context.inputs[i].axes.back()) return axis;
  refuse(context, "{} is not the last axis of {}, which is {}; transpose it", name,
         context.names[i], context.inputs[i].text());
}

const Axis& unsplit_last_axis_of(const InferContext& context, size_t i, std::string_view name) {
  unsplit_axis_of(context, i, name);
  return last_axis_of(context, i, name);
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
  refuse(context, "{} is {}, expected {}{}", context.names[i], type.text_sized(),
         wanted.text_sized(),
         only_layout ? fmt::format("; reshard {} to \"{}\"", context.names[i],
                                   make_type(type.dtype, expected).layout())
                     : "");
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
