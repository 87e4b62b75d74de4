// SPDX-License-Identifier: Apache-2.0
#include "core/ops/einsum.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/op_helpers.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

void check_names(const InferContext& context, const Names& contracted, const Names& output) {
  for (const std::string& name : contracted) {
    axis_of(context, 0, name);
    axis_of(context, 1, name);
    if (contains(output, name))
      refuse(context, "{} is contracted, so the result cannot have it", name);
  }
  for (const std::string& name : output) {
    if (std::ranges::count(output, name) > 1) refuse(context, "the result has axis {} twice", name);
    if (context.inputs[0].has(name) || context.inputs[1].has(name)) continue;
    Names known = context.inputs[0].names();
    const Names others = context.inputs[1].names();
    known.insert(known.end(), others.begin(), others.end());
    refuse(context, "the result's axis {} is in neither operand{}", name,
           did_you_mean(name, known));
  }
  for (size_t i = 0; i < 2; ++i) {
    for (const std::string& name : context.inputs[i].names()) {
      if (contains(output, name) || contains(contracted, name)) continue;
      refuse(context,
             "{} of {} is neither contracted nor in the result; "
             "reduce_sum it first",
             name, context.names[i]);
    }
  }
}

Types infer_einsum(const InferContext& context) {
  const Names& contracted = context.attributes.get(key::kContracted);
  const Names& output = context.attributes.get(key::kOutput);
  Partial partial = partial_of_product(context);
  check_floating(context);
  check_same_dtype(context);
  check_names(context, contracted, output);
  check_agreement(context, 0, 1);

  const Type &a = context.inputs[0], &b = context.inputs[1];
  Type result = make_type(a.dtype, {});
  for (const std::string& name : output)
    result.axes.push_back(a.has(name) ? a.axis(name) : b.axis(name));
  for (const std::string& name : contracted) {
    const Names& split = a.axis(name).split;
    if (split.empty()) continue;
    partial.kind = PartialKind::kSum;
    partial.mesh_axes = mesh_union(context.mesh, partial.mesh_axes, split);
  }
  result.partial = partial;
  check_mesh_axes_once(context, result);
  return {result};
}

Tensor operand_vjp(const Tensor& dy, const Tensor& other, const Tensor& operand) {
  return trace_op(kEinsumOp, {dy, other}, einsum_gradient_attributes(dy, operand), {});
}

Tensors einsum_vjp(const VjpContext& c) {
  return {operand_vjp(c.cotangents[0], c.inputs[1], c.inputs[0]),
          operand_vjp(c.cotangents[0], c.inputs[0], c.inputs[1])};
}

double einsum_flops(const Graph& graph, const Node& node) {
  double multiplications = static_cast<double>(graph.type(node.outputs[0]).elements());
  for (const std::string& name : node.attributes.get(key::kContracted))
    multiplications *= static_cast<double>(graph.type(node.inputs[0]).axis(name).size);
  return 2.0 * multiplications;
}

// Parses "batch/data seq" of an equation: sizes are not written there.
Type equation_part(const SourceSite& site, std::string_view equation, std::string_view part) {
  if (part.find_first_not_of(' ') == std::string_view::npos) return {};
  const ErrorPrefix where(fmt::format("{}: einsum \"{}\"", site.text(), equation));
  Type type = parse_layout(part);
  for (const Axis& axis : type.axes)
    if (axis.size != 0) fail("an equation gives no sizes, got '{}={}'", axis.text(), axis.size);
  return type;
}

// If any part of an equation writes layouts, all parts are checked.
void check_layout(std::string_view equation, const Type& written, const Tensor& tensor) {
  Type sized = tensor.type();
  for (const Axis& axis : written.axes) {
    if (sized.axis(axis.name).split == axis.split && written.partial == sized.partial) continue;
    fail("einsum \"{}\": {} is {}, the equation says {}; reshard it or correct the equation",
         equation, tensor.graph()->describe(tensor.id()), sized.layout(), written.layout());
  }
}

void check_operand_axes(std::string_view equation, const Names& written, const Tensor& tensor) {
  if (std::ranges::is_permutation(written, tensor.type().names())) return;
  fail("einsum \"{}\": {} has axes [{}], the equation says [{}]", equation,
       tensor.graph()->describe(tensor.id()), joined(tensor.type().names()), joined(written));
}

}  // namespace

const Op kEinsumOp{{.name = "einsum",
                    .op_class = OpClass::kContraction,
                    .infer = infer_einsum,
                    .vjp = einsum_vjp,
                    .flops = einsum_flops}};

Over over(std::string_view axes) { return {parse_names(axes)}; }

Attributes einsum_attributes(const Tensor& a, const Tensor& b, const Over& contracted) {
  Names output;
  for (const Tensor& operand : {a, b})
    for (const std::string& name : operand.type().names())
      if (!contains(contracted.axes, name) && !contains(output, name)) output.push_back(name);
  return {{key::kContracted, contracted.axes}, {key::kOutput, output}};
}

// Sums over the axes that the operand lacks.
Attributes einsum_gradient_attributes(const Tensor& dy, const Tensor& operand) {
  return {{key::kContracted, names_beside(dy.type(), operand.type())},
          {key::kOutput, operand.type().names()}};
}

Tensor einsum(Operand a, Operand b, const Over& contracted) {
  return trace_op(kEinsumOp, {a.tensor, b.tensor},
                  einsum_attributes(a.tensor, b.tensor, contracted), a.site);
}

Tensor einsum(std::string_view equation, Operand a, Operand b) {
  const ErrorPrefix where(a.site.text());
  const size_t comma = equation.find(','), arrow = equation.find("->");
  if (comma == std::string_view::npos || arrow == std::string_view::npos || arrow < comma)
    fail("einsum \"{}\": expected \"a b, b c -> a c\"", equation);
  const Type a_type = equation_part(a.site, equation, equation.substr(0, comma));
  const Type b_type =
      equation_part(a.site, equation, equation.substr(comma + 1, arrow - comma - 1));
  const Type result_type = equation_part(a.site, equation, equation.substr(arrow + 2));
  const Names a_axes = a_type.names(), b_axes = b_type.names(), output = result_type.names();
  check_operand_axes(equation, a_axes, a.tensor);
  check_operand_axes(equation, b_axes, b.tensor);
  const bool layouts = equation.find_first_of("/(") != std::string_view::npos;
  if (layouts) {
    check_layout(equation, a_type, a.tensor);
    check_layout(equation, b_type, b.tensor);
  }
  Names contracted;
  for (const std::string& name : a_axes)
    if (contains(b_axes, name) && !contains(output, name)) contracted.push_back(name);
  const Tensor result = trace_op(kEinsumOp, {a.tensor, b.tensor},
                                 {{key::kContracted, contracted}, {key::kOutput, output}}, a.site);
  if (layouts) check_layout(equation, result_type, result);
  return result;
}

}  // namespace tessera
