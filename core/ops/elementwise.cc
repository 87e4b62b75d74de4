// SPDX-License-Identifier: Apache-2.0
#include "core/ops/elementwise.h"

#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
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

Types infer_numeric(const InferContext& context) {
  check_numeric(context);
  return infer_nonlinear(context);
}

Types infer_neg(const InferContext& context) {
  check_numeric(context);
  return infer_linear(context);
}

Types infer_scale(const InferContext& context) {
  check_floating(context);
  return infer_linear(context);
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
  if (const Partial& divisor = context.inputs[1].partial) {
    refuse(context, fmt::format("the divisor {} is partial over {}; {}", context.names[1],
                                mesh_text(divisor.mesh_axes), place_hint(context.names[1])));
  }
  return infer_product(context);
}

Types infer_comparison(const InferContext& context) {
  refuse_partial(context);
  check_same_dtype(context);
  return aligned(context, DType::kBool, {});
}

Types infer_order(const InferContext& context) {
  check_numeric(context);
  return infer_comparison(context);
}

Types infer_logical(const InferContext& context) {
  for (size_t i = 0; i < context.inputs.size(); ++i) check_dtype(context, i, DType::kBool);
  return infer_comparison(context);
}

Types infer_is_finite(const InferContext& context) {
  check_floating(context);
  return infer_comparison(context);
}

void check_condition(const InferContext& context, size_t i) {
  check_dtype(context, i, DType::kBool);
  const Partial& partial = context.inputs[i].partial;
  if (!partial) return;
  refuse(context, fmt::format("the condition {} is partial over {}; {}", context.names[i],
                              mesh_text(partial.mesh_axes), place_hint(context.names[i])));
}

// condition, a, b: linear in a and b together.
Types infer_where(const InferContext& context) {
  refuse_maximum(context);
  check_condition(context, 0);
  const Type& a = context.inputs[1];
  const Type& b = context.inputs[2];
  if (a.dtype != b.dtype) {
    refuse(context, fmt::format("{} is {}, {} is {}; cast one", context.names[1],
                                dtype_name(a.dtype), context.names[2], dtype_name(b.dtype)));
  }
  const Partial partial = partial_of_sum(context, {1, 2});
  for (const std::string& mesh_axis : partial.mesh_axes) {
    if (!split_over(context.inputs[0], mesh_axis)) continue;
    refuse(context,
           fmt::format("{} is partial over {}, which splits the condition {}; {}", context.names[1],
                       mesh_axis, context.names[0], place_hint(context.names[1])));
  }
  return aligned(context, a.dtype, partial);
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
  return {scale(c.cotangents[0], c.node.attributes.get<double>("factor"))};
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

// A number as a scalar of the operand's dtype.
Operand scalar_like(const Operand& x, double value) {
  return {constant(value, x.tensor.dtype(), {}, x.site).named(fmt::format("{}", value)), x.site};
}

}  // namespace

using enum Domain;

const Op kScaleOp{linear_view(elementwise("scale", infer_scale, scale_vjp))};
Tensor scale(Operand x, double factor) {
  return trace_op(kScaleOp, {x.tensor}, {{"factor", factor}}, x.site);
}

const Op kStopGradientOp{[] {
  OpDef op =
      elementwise("stop_gradient", infer_linear, no_vjp, {{kReal}, [](X x) { return x[0]; }});
  op.identity = op.stops_gradient = true;
  return op;
}()};
Tensor stop_gradient(Operand x) { return trace_unary(kStopGradientOp, x); }

const Op kNegOp{
    linear_view(elementwise("neg", infer_neg, neg_vjp, {{kReal}, [](X x) { return -x[0]; }}))};
Tensor neg(Operand x) { return trace_unary(kNegOp, x); }

const Op kExpOp{elementwise("exp", infer_nonlinear_floating, exp_vjp,
                            {{kReal}, [](X x) { return std::exp(x[0]); }, 12})};
Tensor exp(Operand x) { return trace_unary(kExpOp, x); }

const Op kLogOp{elementwise("log", infer_nonlinear_floating, log_vjp,
                            {{kPositive}, [](X x) { return std::log(x[0]); }, 15})};
Tensor log(Operand x) { return trace_unary(kLogOp, x); }

const Op kSqrtOp{elementwise("sqrt", infer_nonlinear_floating, sqrt_vjp,
                             {{kPositive}, [](X x) { return std::sqrt(x[0]); }, 6})};
Tensor sqrt(Operand x) { return trace_unary(kSqrtOp, x); }

const Op kRsqrtOp{elementwise("rsqrt", infer_nonlinear_floating, rsqrt_vjp,
                              {{kPositive}, [](X x) { return 1.0 / std::sqrt(x[0]); }, 10})};
Tensor rsqrt(Operand x) { return trace_unary(kRsqrtOp, x); }

const Op kSquareOp{elementwise("square", infer_nonlinear_floating, square_vjp,
                               {{kReal}, [](X x) { return x[0] * x[0]; }})};
Tensor square(Operand x) { return trace_unary(kSquareOp, x); }

const Op kAbsOp{
    elementwise("abs", infer_numeric, abs_vjp, {{kReal}, [](X x) { return std::abs(x[0]); }})};
Tensor abs(Operand x) { return trace_unary(kAbsOp, x); }

const Op kSignOp{
    elementwise("sign", infer_numeric, no_vjp,
                {{kReal}, [](X x) { return static_cast<double>((x[0] > 0) - (x[0] < 0)); }})};
Tensor sign(Operand x) { return trace_unary(kSignOp, x); }

const Op kSinOp{elementwise("sin", infer_nonlinear_floating, sin_vjp,
                            {{kReal}, [](X x) { return std::sin(x[0]); }, 20})};
Tensor sin(Operand x) { return trace_unary(kSinOp, x); }

const Op kCosOp{elementwise("cos", infer_nonlinear_floating, cos_vjp,
                            {{kReal}, [](X x) { return std::cos(x[0]); }, 20})};
Tensor cos(Operand x) { return trace_unary(kCosOp, x); }

const Op kErfOp{elementwise("erf", infer_nonlinear_floating, erf_vjp,
                            {{kReal}, [](X x) { return std::erf(x[0]); }, 20})};
Tensor erf(Operand x) { return trace_unary(kErfOp, x); }

const Op kAddOp{
    elementwise("add", infer_add, add_vjp, {{kReal, kReal}, [](X x) { return x[0] + x[1]; }})};
Tensor add(Operand a, Operand b) { return trace_binary(kAddOp, a, b); }

const Op kSubOp{
    elementwise("sub", infer_add, sub_vjp, {{kReal, kReal}, [](X x) { return x[0] - x[1]; }})};
Tensor sub(Operand a, Operand b) { return trace_binary(kSubOp, a, b); }

const Op kMulOp{
    elementwise("mul", infer_product, mul_vjp, {{kReal, kReal}, [](X x) { return x[0] * x[1]; }})};
Tensor mul(Operand a, Operand b) { return trace_binary(kMulOp, a, b); }

const Op kDivOp{elementwise("div", infer_quotient, div_vjp,
                            {{kReal, kPositive}, [](X x) { return x[0] / x[1]; }, 4})};
Tensor div(Operand a, Operand b) { return trace_binary(kDivOp, a, b); }

const Op kPowOp{elementwise("pow", infer_nonlinear_floating, pow_vjp,
                            {{kPositive, kReal}, [](X x) { return std::pow(x[0], x[1]); }, 200})};
Tensor pow(Operand a, Operand b) { return trace_binary(kPowOp, a, b); }

const Op kMaximumOp{elementwise("maximum", infer_numeric, maximum_vjp,
                                {{kReal, kReal}, [](X x) { return std::fmax(x[0], x[1]); }})};
Tensor maximum(Operand a, Operand b) { return trace_binary(kMaximumOp, a, b); }

const Op kMinimumOp{elementwise("minimum", infer_numeric, minimum_vjp,
                                {{kReal, kReal}, [](X x) { return std::fmin(x[0], x[1]); }})};
Tensor minimum(Operand a, Operand b) { return trace_binary(kMinimumOp, a, b); }

const Op kEqualOp{elementwise("equal", infer_comparison, nullptr,
                              {{kReal, kReal}, [](X x) { return truth(x[0] == x[1]); }})};
Tensor equal(Operand a, Operand b) { return trace_binary(kEqualOp, a, b); }

const Op kLessOp{elementwise("less", infer_order, nullptr,
                             {{kReal, kReal}, [](X x) { return truth(x[0] < x[1]); }})};
Tensor less(Operand a, Operand b) { return trace_binary(kLessOp, a, b); }

const Op kLessEqualOp{elementwise("less_equal", infer_order, nullptr,
                                  {{kReal, kReal}, [](X x) { return truth(x[0] <= x[1]); }})};
Tensor less_equal(Operand a, Operand b) { return trace_binary(kLessEqualOp, a, b); }

const Op kLogicalAndOp{
    elementwise("logical_and", infer_logical, nullptr,
                {{kBool, kBool}, [](X x) { return truth(x[0] != 0 && x[1] != 0); }})};
Tensor logical_and(Operand a, Operand b) { return trace_binary(kLogicalAndOp, a, b); }

const Op kLogicalOrOp{
    elementwise("logical_or", infer_logical, nullptr,
                {{kBool, kBool}, [](X x) { return truth(x[0] != 0 || x[1] != 0); }})};
Tensor logical_or(Operand a, Operand b) { return trace_binary(kLogicalOrOp, a, b); }

const Op kLogicalNotOp{elementwise("logical_not", infer_logical, nullptr,
                                   {{kBool}, [](X x) { return truth(x[0] == 0); }})};
Tensor logical_not(Operand x) { return trace_unary(kLogicalNotOp, x); }

const Op kIsFiniteOp{elementwise("is_finite", infer_is_finite, nullptr,
                                 {{kReal}, [](X x) { return truth(std::isfinite(x[0])); }})};
Tensor is_finite(Operand x) { return trace_unary(kIsFiniteOp, x); }

const Op kMaskOp{elementwise("mask", infer_mask, mask_vjp,
                             {{kReal, kBool}, [](X x) { return x[1] != 0 ? x[0] : 0.0; }})};
Tensor mask(Operand x, Operand condition) { return trace_binary(kMaskOp, x, condition); }

const Op kWhereOp{elementwise("where", infer_where, where_vjp, {{kBool, kReal, kReal}, [](X x) {
                                                                  return x[0] != 0 ? x[1] : x[2];
                                                                }})};
Tensor where(Operand condition, Operand a, Operand b) {
  return trace_op(kWhereOp, {condition.tensor, a.tensor, b.tensor}, {}, condition.site);
}

Tensor operator+(Operand a, double b) { return add(a, scalar_like(a, b)); }
Tensor operator-(Operand a, double b) { return add(a, scalar_like(a, -b)); }
Tensor operator-(double a, Operand b) { return sub(scalar_like(b, a), b); }

}  // namespace tessera
