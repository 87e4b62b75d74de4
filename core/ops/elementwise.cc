// SPDX-License-Identifier: Apache-2.0
#include "core/ops/elementwise.h"

#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/ops/elementwise_rules.h"
#include "core/ops/generator.h"
#include "core/ops/vjp.h"

namespace tessera {
namespace {

// Type rules beyond those of elementwise_rules.h.

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

// The exponent's gradient is zero where the base is not positive: its logarithm is none.
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

}  // namespace

const OpDef kScaleOp = linear_view(elementwise("scale", infer_scale, scale_vjp));
const OpDef kStopGradientOp = [] {
  OpDef op = elementwise("stop_gradient", infer_linear, no_vjp);
  op.identity = op.stops_gradient = true;
  return op;
}();
const OpDef kWhereOp = elementwise("where", infer_where, where_vjp);
static const OpRegistrar kRegisterNamed{&kScaleOp, &kStopGradientOp, &kWhereOp};

namespace {

// One row an op: name, type rule, gradient.
const OpDef kElementwiseOps[] = {
    linear_view(elementwise("neg", infer_neg, neg_vjp)),

    elementwise("exp", infer_nonlinear_floating, exp_vjp),
    elementwise("log", infer_nonlinear_floating, log_vjp),
    elementwise("sqrt", infer_nonlinear_floating, sqrt_vjp),
    elementwise("rsqrt", infer_nonlinear_floating, rsqrt_vjp),
    elementwise("square", infer_nonlinear_floating, square_vjp),
    elementwise("abs", infer_numeric, abs_vjp),
    elementwise("sign", infer_numeric, no_vjp),
    elementwise("sin", infer_nonlinear_floating, sin_vjp),
    elementwise("cos", infer_nonlinear_floating, cos_vjp),
    elementwise("erf", infer_nonlinear_floating, erf_vjp),

    elementwise("add", infer_add, add_vjp),
    elementwise("sub", infer_add, sub_vjp),
    elementwise("mul", infer_product, mul_vjp),
    elementwise("div", infer_quotient, div_vjp),
    elementwise("pow", infer_nonlinear_floating, pow_vjp),
    elementwise("maximum", infer_numeric, maximum_vjp),
    elementwise("minimum", infer_numeric, minimum_vjp),

    elementwise("equal", infer_comparison),
    elementwise("less", infer_order),
    elementwise("less_equal", infer_order),
    elementwise("logical_and", infer_logical),
    elementwise("logical_or", infer_logical),
    elementwise("logical_not", infer_logical),
    elementwise("is_finite", infer_is_finite),

    elementwise("mask", infer_mask, mask_vjp),
};
const OpRegistrar kRegisterElementwise{std::span<const OpDef>(kElementwiseOps)};

Tensor unary(std::string_view op, const Operand& x) {
  return trace_op(find_op(op), {x.tensor}, {}, x.site);
}
Tensor binary(std::string_view op, const Operand& a, const Operand& b) {
  return trace_op(find_op(op), {a.tensor, b.tensor}, {}, a.site);
}
// A number beside a tensor.
Operand scalar_like(const Operand& x, double value) {
  return {constant(value, x.tensor.dtype(), {}, x.site).named(fmt::format("{}", value)), x.site};
}

}  // namespace

Tensor neg(Operand x) { return unary("neg", x); }
Tensor scale(Operand x, double factor) {
  return trace_op(kScaleOp, {x.tensor}, {{"factor", factor}}, x.site);
}
Tensor stop_gradient(Operand x) { return trace_op(kStopGradientOp, {x.tensor}, {}, x.site); }

Tensor exp(Operand x) { return unary("exp", x); }
Tensor log(Operand x) { return unary("log", x); }
Tensor sqrt(Operand x) { return unary("sqrt", x); }
Tensor rsqrt(Operand x) { return unary("rsqrt", x); }
Tensor square(Operand x) { return unary("square", x); }
Tensor abs(Operand x) { return unary("abs", x); }
Tensor sign(Operand x) { return unary("sign", x); }
Tensor sin(Operand x) { return unary("sin", x); }
Tensor cos(Operand x) { return unary("cos", x); }
Tensor erf(Operand x) { return unary("erf", x); }

Tensor add(Operand a, Operand b) { return binary("add", a, b); }
Tensor sub(Operand a, Operand b) { return binary("sub", a, b); }
Tensor mul(Operand a, Operand b) { return binary("mul", a, b); }
Tensor div(Operand a, Operand b) { return binary("div", a, b); }
Tensor pow(Operand a, Operand b) { return binary("pow", a, b); }
Tensor maximum(Operand a, Operand b) { return binary("maximum", a, b); }
Tensor minimum(Operand a, Operand b) { return binary("minimum", a, b); }

Tensor equal(Operand a, Operand b) { return binary("equal", a, b); }
Tensor less(Operand a, Operand b) { return binary("less", a, b); }
Tensor less_equal(Operand a, Operand b) { return binary("less_equal", a, b); }
Tensor logical_and(Operand a, Operand b) { return binary("logical_and", a, b); }
Tensor logical_or(Operand a, Operand b) { return binary("logical_or", a, b); }
Tensor logical_not(Operand a) { return unary("logical_not", a); }
Tensor is_finite(Operand x) { return unary("is_finite", x); }

Tensor where(Operand condition, Operand a, Operand b) {
  return trace_op(kWhereOp, {condition.tensor, a.tensor, b.tensor}, {}, condition.site);
}
Tensor mask(Operand x, Operand condition) { return binary("mask", x, condition); }

Tensor operator+(Operand a, double b) { return add(a, scalar_like(a, b)); }
Tensor operator-(Operand a, double b) { return add(a, scalar_like(a, -b)); }
Tensor operator-(double a, Operand b) { return sub(scalar_like(b, a), b); }

}  // namespace tessera
