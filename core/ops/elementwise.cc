// SPDX-License-Identifier: Apache-2.0
#include "core/ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/typing.h"
#include "core/ops/generator.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"

namespace tessera {
namespace {

using X = const double*;

Types aligned(const InferContext& context, DType dtype, const Partial& partial) {
  const Type result = {dtype, aligned_axes(context), partial};
  check_mesh_axes_once(context, result);
  return {result};
}

Types infer_add(const InferContext& context) {
  check_numeric(context);
  const Partial partial = partial_of_sum(context, {0, 1});
  check_same_dtype(context);
  return aligned(context, context.inputs[0].dtype, partial);
}

Types infer_product(const InferContext& context) {
  check_numeric(context);
  const Partial partial = partial_of_product(context);
  check_same_dtype(context);
  return aligned(context, context.inputs[0].dtype, partial);
}

Types infer_quotient(const InferContext& context) {
  check_floating(context);
  refuse_maximum(context);
  refuse_partial_operand(context, 1, "the divisor");
  return infer_product(context);
}

Types infer_comparison(const InferContext& context) {
  refuse_partial(context);
  check_same_dtype(context);
  return aligned(context, DType::kBool, {});
}

Types infer_logical(const InferContext& context) {
  for (size_t i = 0; i < context.inputs.size(); ++i) check_dtype(context, i, DType::kBool);
  return infer_comparison(context);
}

void check_condition(const InferContext& context, size_t i) {
  check_dtype(context, i, DType::kBool);
  refuse_partial_operand(context, i, "the condition");
}

// condition, a, b: linear in a and b together.
Types infer_where(const InferContext& context) {
  refuse_maximum(context);
  check_condition(context, 0);
  check_dtypes_agree(context, 1, 2);
  const Partial partial = partial_of_sum(context, {1, 2});
  for (const std::string& mesh_axis : partial.mesh_axes) {
    if (!split_over(context.inputs[0], mesh_axis)) continue;
    refuse(context, "{} is partial over {}, which splits the condition {}; {}", context.names[1],
           mesh_axis, context.names[0], place_hint(context.names[1]));
  }
  return aligned(context, context.inputs[1].dtype, partial);
}

// x, condition: linear in x.
Types infer_mask(const InferContext& context) {
  refuse_maximum(context);
  check_condition(context, 1);
  return aligned(context, context.inputs[0].dtype, partial_of_product(context));
}

// Gradients. dy is the cotangent, x, a and b the operands, y the result.

Tensors no_vjp(const VjpContext& c) { return Tensors(c.inputs.size()); }

Tensors neg_vjp(const VjpContext& c) { return {neg(c.cotangents[0])}; }

Tensors scale_vjp(const VjpContext& c) {
  return {scale(c.cotangents[0], c.node.attributes.get(key::kFactor))};
}

Tensors exp_vjp(const VjpContext& c) { return {mul(c.cotangents[0], c.outputs[0])}; }
Tensors log_vjp(const VjpContext& c) { return {div(c.cotangents[0], c.inputs[0])}; }
Tensors sqrt_vjp(const VjpContext& c) { return {scale(div(c.cotangents[0], c.outputs[0]), 0.5)}; }
Tensors square_vjp(const VjpContext& c) { return {scale(mul(c.cotangents[0], c.inputs[0]), 2.0)}; }
Tensors abs_vjp(const VjpContext& c) { return {mul(c.cotangents[0], sign(c.inputs[0]))}; }
Tensors sin_vjp(const VjpContext& c) { return {mul(c.cotangents[0], cos(c.inputs[0]))}; }
Tensors cos_vjp(const VjpContext& c) { return {neg(mul(c.cotangents[0], sin(c.inputs[0])))}; }

Tensors rsqrt_vjp(const VjpContext& c) {
  const Tensor& y = c.outputs[0];
  return {scale(mul(c.cotangents[0], mul(square(y), y)), -0.5)};
}

Tensors erf_vjp(const VjpContext& c) {
  const Tensor slope = scale(exp(neg(square(c.inputs[0]))), 2.0 * std::numbers::inv_sqrtpi);
  return {mul(c.cotangents[0], slope)};
}

Tensors add_vjp(const VjpContext& c) {
  return {match(c.cotangents[0], c.inputs[0]), match(c.cotangents[0], c.inputs[1])};
}

Tensors sub_vjp(const VjpContext& c) {
  return {match(c.cotangents[0], c.inputs[0]), neg(match(c.cotangents[0], c.inputs[1]))};
}

Tensors mul_vjp(const VjpContext& c) {
  const Tensor &a = c.inputs[0], &b = c.inputs[1], &dy = c.cotangents[0];
  return {match(mul(dy, b), a), match(mul(dy, a), b)};
}

Tensors div_vjp(const VjpContext& c) {
  const Tensor &a = c.inputs[0], &b = c.inputs[1], &dy = c.cotangents[0];
  return {match(div(dy, b), a), match(neg(div(mul(dy, c.outputs[0]), b)), b)};
}

// The exponent's gradient is 0 where the base is not positive, as its logarithm is not defined.
Tensors pow_vjp(const VjpContext& c) {
  const Tensor &a = c.inputs[0], &b = c.inputs[1], &dy = c.cotangents[0];
  const Tensor slope = mul(b, pow(a, b - 1.0));
  const Tensor positive = less(constant(0.0, a.dtype()), a);
  const Tensor logarithm = log(where(positive, a, constant(1.0, a.dtype())));
  return {match(mul(dy, slope), a), match(mul(dy, mul(c.outputs[0], logarithm)), b)};
}

Tensors maximum_vjp(const VjpContext& c) {
  const Tensor &a = c.inputs[0], &b = c.inputs[1], &dy = c.cotangents[0];
  return {match(mask(dy, less_equal(b, a)), a), match(mask(dy, less(a, b)), b)};
}

Tensors minimum_vjp(const VjpContext& c) {
  const Tensor &a = c.inputs[0], &b = c.inputs[1], &dy = c.cotangents[0];
  return {match(mask(dy, less_equal(a, b)), a), match(mask(dy, less(b, a)), b)};
}

Tensors where_vjp(const VjpContext& c) {
  const Tensor &condition = c.inputs[0], &dy = c.cotangents[0];
  return {Tensor(), match(mask(dy, condition), c.inputs[1]),
          match(mask(dy, logical_not(condition)), c.inputs[2])};
}

Tensors mask_vjp(const VjpContext& c) {
  return {match(mask(c.cotangents[0], c.inputs[1]), c.inputs[0]), Tensor()};
}

double truth(bool value) { return value ? 1.0 : 0.0; }

// Returns a number as a scalar of the operand's dtype.
Operand scalar_like(const Operand& x, double value) {
  return {constant(value, x.tensor.dtype(), {}, x.site).named(fmt::format("{}", value)), x.site};
}

OpDef activation(std::string_view name, decltype(OpDef::vjp) vjp,
                 decltype(ElementFunction::apply) f, double cost) {
  return elementwise(name, infer_nonlinear_floating, vjp, {{Domain::kReal}, f, cost});
}

// Makes the gradient op of a function, on (saved, dy).
OpDef gradient(std::string_view name, decltype(ElementFunction::apply) f, double cost) {
  return elementwise(name, infer_gradient, nullptr, {{Domain::kReal, Domain::kReal}, f, cost});
}

// Is the vjp of an op whose gradient op reads its operand, or its result.
template <Tensor (*kGradient)(Operand, Operand)>
Tensors from_operand(const VjpContext& c) {
  return {kGradient(c.inputs[0], c.cotangents[0])};
}
template <Tensor (*kGradient)(Operand, Operand)>
Tensors from_result(const VjpContext& c) {
  return {kGradient(c.outputs[0], c.cotangents[0])};
}

Tensors softplus_vjp(const VjpContext& c) { return {mul(c.cotangents[0], sigmoid(c.inputs[0]))}; }

double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Return the density φ and the distribution function Φ of the standard normal distribution.
double normal_density(double x) {
  return std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}
double normal_cdf(double x) { return 0.5 * (1.0 + std::erf(x / std::numbers::sqrt2)); }

// gelu_tanh is x·(1 + tanh u)/2 with u = sqrt(2/π)·(x + 0.044715 x³).
constexpr double kGeluCubic = 0.044715;
const double kGeluSlope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
double gelu_argument(double x) { return kGeluSlope * (x + kGeluCubic * x * x * x); }

double gelu_tanh_slope(double x) {
  const double t = std::tanh(gelu_argument(x));
  const double inner = kGeluSlope * (1.0 + 3.0 * kGeluCubic * x * x);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
}

double silu_slope(double x) {
  const double s = sigmoid_of(x);
  return s + x * s * (1.0 - s);
}

}  // namespace

using enum Domain;

const Op kScaleOp{
    linear_view(elementwise("scale", checked<infer_linear, check_floating>, scale_vjp))};
Tensor scale(Operand x, double factor) {
  return trace_unary(kScaleOp, x, {{key::kFactor, factor}});
}

const Op kStopGradientOp{[] {
  OpDef op =
      elementwise("stop_gradient", infer_linear, no_vjp, {{kReal}, [](X x) { return x[0]; }});
  op.identity = op.stops_gradient = true;
  return op;
}()};

const Op kNegOp{linear_view(elementwise("neg", checked<infer_linear, check_numeric>, neg_vjp,
                                        {{kReal}, [](X x) { return -x[0]; }}))};

const Op kExpOp{elementwise("exp", infer_nonlinear_floating, exp_vjp,
                            {{kReal}, [](X x) { return std::exp(x[0]); }, 12})};

const Op kLogOp{elementwise("log", infer_nonlinear_floating, log_vjp,
                            {{kPositive}, [](X x) { return std::log(x[0]); }, 15})};

const Op kSqrtOp{elementwise("sqrt", infer_nonlinear_floating, sqrt_vjp,
                             {{kPositive}, [](X x) { return std::sqrt(x[0]); }, 6})};

const Op kRsqrtOp{elementwise("rsqrt", infer_nonlinear_floating, rsqrt_vjp,
                              {{kPositive}, [](X x) { return 1.0 / std::sqrt(x[0]); }, 10})};

const Op kSquareOp{elementwise("square", infer_nonlinear_floating, square_vjp,
                               {{kReal}, [](X x) { return x[0] * x[0]; }})};

const Op kAbsOp{elementwise("abs", checked<infer_nonlinear, check_numeric>, abs_vjp,
                            {{kReal}, [](X x) { return std::abs(x[0]); }})};

const Op kSignOp{
    elementwise("sign", checked<infer_nonlinear, check_numeric>, no_vjp,
                {{kReal}, [](X x) { return static_cast<double>((x[0] > 0) - (x[0] < 0)); }})};

const Op kSinOp{elementwise("sin", infer_nonlinear_floating, sin_vjp,
                            {{kReal}, [](X x) { return std::sin(x[0]); }, 20})};

const Op kCosOp{elementwise("cos", infer_nonlinear_floating, cos_vjp,
                            {{kReal}, [](X x) { return std::cos(x[0]); }, 20})};

const Op kErfOp{elementwise("erf", infer_nonlinear_floating, erf_vjp,
                            {{kReal}, [](X x) { return std::erf(x[0]); }, 20})};

const Op kAddOp{
    elementwise("add", infer_add, add_vjp, {{kReal, kReal}, [](X x) { return x[0] + x[1]; }})};

const Op kSubOp{
    elementwise("sub", infer_add, sub_vjp, {{kReal, kReal}, [](X x) { return x[0] - x[1]; }})};

const Op kMulOp{
    elementwise("mul", infer_product, mul_vjp, {{kReal, kReal}, [](X x) { return x[0] * x[1]; }})};

const Op kDivOp{elementwise("div", infer_quotient, div_vjp,
                            {{kReal, kPositive}, [](X x) { return x[0] / x[1]; }, 4})};

const Op kPowOp{elementwise("pow", infer_nonlinear_floating, pow_vjp,
                            {{kPositive, kReal}, [](X x) { return std::pow(x[0], x[1]); }, 200})};

const Op kMaximumOp{elementwise("maximum", checked<infer_nonlinear, check_numeric>, maximum_vjp,
                                {{kReal, kReal}, [](X x) { return std::fmax(x[0], x[1]); }})};

const Op kMinimumOp{elementwise("minimum", checked<infer_nonlinear, check_numeric>, minimum_vjp,
                                {{kReal, kReal}, [](X x) { return std::fmin(x[0], x[1]); }})};

const Op kEqualOp{elementwise("equal", infer_comparison, nullptr,
                              {{kReal, kReal}, [](X x) { return truth(x[0] == x[1]); }})};

const Op kLessOp{elementwise("less", checked<infer_comparison, check_numeric>, nullptr,
                             {{kReal, kReal}, [](X x) { return truth(x[0] < x[1]); }})};

const Op kLessEqualOp{elementwise("less_equal", checked<infer_comparison, check_numeric>, nullptr,
                                  {{kReal, kReal}, [](X x) { return truth(x[0] <= x[1]); }})};

const Op kLogicalAndOp{
    elementwise("logical_and", infer_logical, nullptr,
                {{kBool, kBool}, [](X x) { return truth(x[0] != 0 && x[1] != 0); }})};

const Op kLogicalOrOp{
    elementwise("logical_or", infer_logical, nullptr,
                {{kBool, kBool}, [](X x) { return truth(x[0] != 0 || x[1] != 0); }})};

const Op kLogicalNotOp{elementwise("logical_not", infer_logical, nullptr,
                                   {{kBool}, [](X x) { return truth(x[0] == 0); }})};

const Op kIsFiniteOp{elementwise("is_finite", checked<infer_comparison, check_floating>, nullptr,
                                 {{kReal}, [](X x) { return truth(std::isfinite(x[0])); }})};

const Op kMaskOp{elementwise("mask", infer_mask, mask_vjp,
                             {{kReal, kBool}, [](X x) { return x[1] != 0 ? x[0] : 0.0; }})};

const Op kWhereOp{elementwise("where", infer_where, where_vjp, {{kBool, kReal, kReal}, [](X x) {
                                                                  return x[0] != 0 ? x[1] : x[2];
                                                                }})};
Tensor where(Operand condition, Operand a, Operand b) {
  return trace_op(kWhereOp, {condition.tensor, a.tensor, b.tensor}, {}, condition.site);
}

Tensor operator+(Operand a, double b) { return add(a, scalar_like(a, b)); }
Tensor operator-(Operand a, double b) { return add(a, scalar_like(a, -b)); }
Tensor operator-(double a, Operand b) { return sub(scalar_like(b, a), b); }

const Op kTanhOp{activation(
    "tanh", from_result<tanh_grad>, [](X x) { return std::tanh(x[0]); }, 18)};

Tensor soft_cap(Operand x, double cap) { return cap > 0.0 ? tanh(x / cap) * cap : x.tensor; }

Tensor soft_cap_grad(Operand y, Operand dy, double cap) {
  return cap > 0.0 ? dy * (1.0 - square(y / cap)) : dy.tensor;
}

const Op kSigmoidOp{activation(
    "sigmoid", from_result<sigmoid_grad>, [](X x) { return sigmoid_of(x[0]); }, 18)};

const Op kReluOp{activation(
    "relu", from_result<relu_grad>, [](X x) { return std::fmax(x[0], 0.0); }, 1)};

// In the stable form max(x, 0) + log(1 + e^-|x|).
const Op kSoftplusOp{activation(
    "softplus", softplus_vjp,
    [](X x) { return std::fmax(x[0], 0.0) + std::log1p(std::exp(-std::abs(x[0]))); }, 30)};

const Op kSiluOp{activation(
    "silu", from_operand<silu_grad>, [](X x) { return x[0] * sigmoid_of(x[0]); }, 18)};

const Op kGeluOp{activation(
    "gelu", from_operand<gelu_grad>, [](X x) { return x[0] * normal_cdf(x[0]); }, 25)};

const Op kGeluTanhOp{activation(
    "gelu_tanh", from_operand<gelu_tanh_grad>,
    [](X x) { return 0.5 * x[0] * (1.0 + std::tanh(gelu_argument(x[0]))); }, 22)};

const Op kTanhGradOp{gradient(
    "tanh_grad", [](X x) { return x[1] * (1.0 - x[0] * x[0]); }, 1)};

const Op kSigmoidGradOp{gradient(
    "sigmoid_grad", [](X x) { return x[1] * x[0] * (1.0 - x[0]); }, 1)};

const Op kReluGradOp{gradient(
    "relu_grad", [](X x) { return x[0] > 0.0 ? x[1] : 0.0; }, 1)};

const Op kSiluGradOp{gradient(
    "silu_grad", [](X x) { return x[1] * silu_slope(x[0]); }, 20)};

const Op kGeluGradOp{gradient(
    "gelu_grad", [](X x) { return x[1] * (normal_cdf(x[0]) + x[0] * normal_density(x[0])); }, 35)};

const Op kGeluTanhGradOp{gradient(
    "gelu_tanh_grad", [](X x) { return x[1] * gelu_tanh_slope(x[0]); }, 28)};

Lane lane_of(DType dtype, std::string_view backend) {
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
      return Lane::kFloat;
    case DType::kI32:
      return Lane::kInt;
    case DType::kBool:
      return Lane::kTruth;
    case DType::kU32:
    case DType::kF64:
      break;
  }
  fail("the {} backend computes in f32, bf16, i32 and bool, not in {}; cast it", backend,
       dtype_name(dtype));
}

bool needs_rounding(const Graph& graph, const Node& node) {
  // The result is an operand, up to its sign, or a number of few digits.
  static const OpDef* const kExact[] = {
      &kNegOp,  &kStopGradientOp, &kAbsOp,      &kSignOp,     &kMaximumOp, &kMinimumOp,  &kWhereOp,
      &kMaskOp, &kReluOp,         &kReluGradOp, &kConstantOp, &kOneHotOp,  &kBroadcastOp};
  if (graph.type(node.outputs[0]).dtype != DType::kBF16) return false;
  if (node.op == &kCastOp) return graph.type(node.inputs[0]).dtype != DType::kBF16;
  return std::ranges::find(kExact, node.op) == std::end(kExact);
}

DType operand_dtype(const Graph& graph, const Node& node) {
  const auto& domains = node.op->element.operands;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (domains[i] != Domain::kBool) return graph.type(node.inputs[i]).dtype;
  return graph.type(node.inputs[0]).dtype;
}

}  // namespace tessera
