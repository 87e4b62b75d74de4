// SPDX-License-Identifier: Apache-2.0
#include "core/ops/activation.h"

#include <numbers>

#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/elementwise_rules.h"
#include "core/ops/generator.h"
#include "core/ops/vjp.h"

namespace tessera {
namespace {

using Inputs = std::span<const Tensor>;

// The tanh approximation of gelu: x·(1 + tanh u)/2 with u = sqrt(2/π)·(x + 0.044715 x³).
constexpr double kGeluCubic = 0.044715;
const double kGeluSlope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;

Tensor half(const Tensor& x) { return scale(x, 0.5); }
Tensor cube(const Tensor& x) { return mul(square(x), x); }
Tensor gelu_argument(const Tensor& x) { return scale(x + scale(cube(x), kGeluCubic), kGeluSlope); }

// Φ(x), the standard normal distribution.
Tensor normal_cdf(const Tensor& x) { return half(erf(scale(x, 1.0 / std::numbers::sqrt2)) + 1.0); }

// In the stable form max(x, 0) + log(1 + e^-|x|).
Tensors softplus_plain(const Node&, Inputs in) {
  return {relu(in[0]) + log(exp(neg(abs(in[0]))) + 1.0)};
}

Tensors tanh_grad_plain(const Node&, Inputs in) { return {mul(in[1], 1.0 - square(in[0]))}; }

Tensors sigmoid_grad_plain(const Node&, Inputs in) { return {mul(in[1], mul(in[0], 1.0 - in[0]))}; }

Tensors relu_plain(const Node&, Inputs in) {
  return {maximum(in[0], constant(0.0, in[0].dtype()))};
}

Tensors relu_grad_plain(const Node&, Inputs in) {
  return {mask(in[1], less(constant(0.0, in[0].dtype()), in[0]))};
}

Tensors silu_plain(const Node&, Inputs in) { return {mul(in[0], sigmoid(in[0]))}; }

// s + x·s·(1 - s), with s = sigmoid(x).
Tensors silu_grad_plain(const Node&, Inputs in) {
  const Tensor s = sigmoid(in[0]);
  return {mul(in[1], s + mul(in[0], mul(s, 1.0 - s)))};
}

Tensors gelu_plain(const Node&, Inputs in) { return {mul(in[0], normal_cdf(in[0]))}; }

// Φ(x) + x·φ(x), with the normal density φ.
Tensors gelu_grad_plain(const Node&, Inputs in) {
  constexpr double kInverseRootTwoPi = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  const Tensor density = scale(exp(scale(square(in[0]), -0.5)), kInverseRootTwoPi);
  return {mul(in[1], normal_cdf(in[0]) + mul(in[0], density))};
}

Tensors gelu_tanh_plain(const Node&, Inputs in) {
  return {mul(in[0], half(tanh(gelu_argument(in[0])) + 1.0))};
}

// (1 + t)/2 + x·(1 - t²)·u'/2, with t = tanh u.
Tensors gelu_tanh_grad_plain(const Node&, Inputs in) {
  const Tensor t = tanh(gelu_argument(in[0]));
  const Tensor slope = scale(scale(square(in[0]), 3.0 * kGeluCubic) + 1.0, kGeluSlope);
  const Tensor bend = half(mul(in[0], mul(1.0 - square(t), slope)));
  return {mul(in[1], half(t + 1.0) + bend)};
}

Tensors tanh_vjp(const VjpContext& c) { return {tanh_grad(c.outputs[0], c.cotangents[0])}; }
Tensors sigmoid_vjp(const VjpContext& c) { return {sigmoid_grad(c.outputs[0], c.cotangents[0])}; }
Tensors relu_vjp(const VjpContext& c) { return {relu_grad(c.outputs[0], c.cotangents[0])}; }
Tensors softplus_vjp(const VjpContext& c) { return {mul(c.cotangents[0], sigmoid(c.inputs[0]))}; }
Tensors silu_vjp(const VjpContext& c) { return {silu_grad(c.inputs[0], c.cotangents[0])}; }
Tensors gelu_vjp(const VjpContext& c) { return {gelu_grad(c.inputs[0], c.cotangents[0])}; }
Tensors gelu_tanh_vjp(const VjpContext& c) {
  return {gelu_tanh_grad(c.inputs[0], c.cotangents[0])};
}

// One row an op: name, type rule, gradient, decomposition.
const OpDef kActivationOps[] = {
    elementwise("tanh", infer_nonlinear_floating, tanh_vjp),
    elementwise("sigmoid", infer_nonlinear_floating, sigmoid_vjp),
    elementwise("relu", infer_nonlinear_floating, relu_vjp, relu_plain),
    elementwise("softplus", infer_nonlinear_floating, softplus_vjp, softplus_plain),
    elementwise("silu", infer_nonlinear_floating, silu_vjp, silu_plain),
    elementwise("gelu", infer_nonlinear_floating, gelu_vjp, gelu_plain),
    elementwise("gelu_tanh", infer_nonlinear_floating, gelu_tanh_vjp, gelu_tanh_plain),

    elementwise("tanh_grad", infer_gradient, nullptr, tanh_grad_plain),
    elementwise("sigmoid_grad", infer_gradient, nullptr, sigmoid_grad_plain),
    elementwise("relu_grad", infer_gradient, nullptr, relu_grad_plain),
    elementwise("silu_grad", infer_gradient, nullptr, silu_grad_plain),
    elementwise("gelu_grad", infer_gradient, nullptr, gelu_grad_plain),
    elementwise("gelu_tanh_grad", infer_gradient, nullptr, gelu_tanh_grad_plain),
};
const OpRegistrar kRegisterActivation{std::span<const OpDef>(kActivationOps)};

Tensor activation(std::string_view op, const Operand& x) {
  return trace_op(find_op(op), {x.tensor}, {}, x.site);
}
Tensor gradient(std::string_view op, const Operand& saved, const Operand& dy) {
  return trace_op(find_op(op), {saved.tensor, dy.tensor}, {}, saved.site);
}

}  // namespace

Tensor tanh(Operand x) { return activation("tanh", x); }
Tensor sigmoid(Operand x) { return activation("sigmoid", x); }
Tensor relu(Operand x) { return activation("relu", x); }
Tensor softplus(Operand x) { return activation("softplus", x); }
Tensor silu(Operand x) { return activation("silu", x); }
Tensor gelu(Operand x) { return activation("gelu", x); }
Tensor gelu_tanh(Operand x) { return activation("gelu_tanh", x); }

Tensor tanh_grad(Operand y, Operand dy) { return gradient("tanh_grad", y, dy); }
Tensor sigmoid_grad(Operand y, Operand dy) { return gradient("sigmoid_grad", y, dy); }
Tensor relu_grad(Operand y, Operand dy) { return gradient("relu_grad", y, dy); }
Tensor silu_grad(Operand x, Operand dy) { return gradient("silu_grad", x, dy); }
Tensor gelu_grad(Operand x, Operand dy) { return gradient("gelu_grad", x, dy); }
Tensor gelu_tanh_grad(Operand x, Operand dy) { return gradient("gelu_tanh_grad", x, dy); }

}  // namespace tessera
