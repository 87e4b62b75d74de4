// SPDX-License-Identifier: Apache-2.0
#include "core/ops/fp8.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

// Returns the largest k for which amax·2^k is in the range of the format.
int scale_exponent(const Float8Format& format, double amax) {
  amax = std::max(amax, static_cast<double>(kLeastAmax));
  const int exponent = std::ilogb(amax);
  return format.max_exponent - exponent - (amax > std::ldexp(1.75, exponent) ? 1 : 0);
}

// operands = {x, amax}
template <const Float8Format& kFormat>
double round_to(const double* operands) {
  const double x = operands[0], amax = operands[1];
  if (!std::isfinite(amax) || std::isnan(x)) return std::numeric_limits<double>::quiet_NaN();
  const int scale = scale_exponent(kFormat, amax);
  constexpr double kLargest = largest(kFormat);
  const double scaled = std::clamp(std::ldexp(x, scale), -kLargest, kLargest);
  // Below the least exponent of normal numbers, subnormal numbers have its spacing. (The exponent
  // of 0 is smaller than any.)
  const int exponent = std::max(std::ilogb(scaled), kFormat.min_exponent);
  const double spacing = std::ldexp(1.0, exponent - kFormat.digits);
  return std::ldexp(std::nearbyint(scaled / spacing) * spacing, -scale);
}

OpDef rounding(std::string_view name, decltype(ElementFunction::apply) function) {
  OpDef op = elementwise(name, infer_nonlinear_floating, nullptr,
                         {{Domain::kReal, Domain::kPositive}, function, 8});
  op.instead_of_gradient = "fp8_product has one; or stop_gradient its operand";
  return op;
}

// Infers the maximum over the elements that a device has: over split axes a partial maximum.
Types infer_absolute_maximum(const InferContext& context) {
  const Attributes over_all = {{key::kAxes, context.inputs[0].names()}};
  return kReduceMaxOp.infer({context.op, context.mesh, context.inputs, over_all, context.names,
                             context.bodies, context.graph, context.values, context.site});
}

Tensors decompose_absolute_maximum(const Node&, std::span<const Tensor> inputs) {
  return {reduce_max(abs(inputs[0]), joined(inputs[0].type().names()))};
}

// a, b and their absolute maxima.
Types infer_fp8_product(const InferContext& context) {
  refuse_partial(context);
  check_same_dtype(context);
  for (const size_t i : {2, 3}) check_axis_names(context, i, "");
  InferContext operands = context;
  operands.inputs = context.inputs.first(2);
  operands.names = context.names.first(2);
  if (!context.values.empty()) operands.values = context.values.first(2);
  return kEinsumOp.infer(operands);
}

Tensor rounded_to(std::string_view format, const Tensor& x, const Tensor& amax) {
  return format == "e4m3" ? round_e4m3(x, amax) : round_e5m2(x, amax);
}

Tensors decompose_fp8_product(const Node& node, std::span<const Tensor> inputs) {
  const Names& formats = node.attributes.get(key::kFormats);
  const Attributes attributes = {{key::kContracted, node.attributes.get(key::kContracted)},
                                 {key::kOutput, node.attributes.get(key::kOutput)}};
  return {trace_op(
      kEinsumOp,
      {rounded_to(formats[0], inputs[0], inputs[2]), rounded_to(formats[1], inputs[1], inputs[3])},
      attributes, node.site)};
}

Tensors fp8_product_vjp(const VjpContext& c) {
  const Tensor& dy = c.cotangents[0];
  const Tensor amax = absolute_maximum(dy);
  const auto cotangent = [&](size_t operand) {
    const size_t other = 1 - operand;
    Attributes attributes = einsum_gradient_attributes(dy, c.inputs[operand]);
    attributes.set(key::kFormats, Names{"e5m2", "e4m3"});
    return trace_op(kFp8ProductOp, {dy, c.inputs[other], amax, c.inputs[2 + other]}, attributes,
                    {});
  };
  return {cotangent(0), cotangent(1), {}, {}};
}

}  // namespace

const Op kRoundE4M3Op{rounding("round_e4m3", round_to<kE4M3>)};
Tensor round_e4m3(Operand x, Operand amax) { return trace_binary(kRoundE4M3Op, x, amax); }

const Op kRoundE5M2Op{rounding("round_e5m2", round_to<kE5M2>)};
Tensor round_e5m2(Operand x, Operand amax) { return trace_binary(kRoundE5M2Op, x, amax); }

const Op kAbsoluteMaximumOp{{.name = "absolute_maximum",
                             .op_class = OpClass::kReduction,
                             .infer = infer_absolute_maximum,
                             .decomposition = decompose_absolute_maximum,
                             .flops = flops_per_element<2>}};
Tensor absolute_maximum(Operand x) {
  const SiteScope site(x.site);
  return reduced(trace_op(kAbsoluteMaximumOp, {stop_gradient(x)}, {}, x.site));
}

const Op kFp8ProductOp{
    {.name = "fp8_product",
     .op_class = OpClass::kContraction,
     .infer = infer_fp8_product,
     .vjp = fp8_product_vjp,
     .decomposition = decompose_fp8_product,
     .flops = [](const Graph& graph, const Node& node) { return kEinsumOp.flops(graph, node); }}};

Tensor fp8_product(Operand a, Operand b, const Over& contracted) {
  Attributes attributes = einsum_attributes(a.tensor, b.tensor, contracted);
  attributes.set(key::kFormats, Names{"e4m3", "e4m3"});
  return trace_op(kFp8ProductOp,
                  {a.tensor, b.tensor, absolute_maximum({a.tensor, a.site}),
                   absolute_maximum({b.tensor, a.site})},
                  attributes, a.site);
}

}  // namespace tessera
