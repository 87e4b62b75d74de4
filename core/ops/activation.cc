// SPDX-License-Identifier: Apache-2.0
#include "core/ops/activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/graph/op.h"
#include "core/ops/elementwise.h"
#include "core/ops/op_helpers.h"

namespace tessera {
namespace {

using X = const double*;

OpDef activation(std::string_view name, decltype(OpDef::vjp) vjp,
                 decltype(ElementFunction::apply) f, double cost) {
  return elementwise(name, infer_nonlinear_floating, vjp, {{Domain::kReal}, f, cost});
}

// The gradient of a function, on (saved, dy).
OpDef gradient(std::string_view name, decltype(ElementFunction::apply) f, double cost) {
  return elementwise(name, infer_gradient, nullptr, {{Domain::kReal, Domain::kReal}, f, cost});
}

// vjp of an op whose gradient op reads its operand, or its result.
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

// The density φ and the distribution function Φ of the standard normal distribution.
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

const Op kTanhOp{activation(
    "tanh", from_result<tanh_grad>, [](X x) { return std::tanh(x[0]); }, 18)};
Tensor tanh(Operand x) { return trace_unary(kTanhOp, x); }

const Op kSigmoidOp{activation(
    "sigmoid", from_result<sigmoid_grad>, [](X x) { return sigmoid_of(x[0]); }, 18)};
Tensor sigmoid(Operand x) { return trace_unary(kSigmoidOp, x); }

const Op kReluOp{activation(
    "relu", from_result<relu_grad>, [](X x) { return std::fmax(x[0], 0.0); }, 1)};
Tensor relu(Operand x) { return trace_unary(kReluOp, x); }

// In the stable form max(x, 0) + log(1 + e^-|x|).
const Op kSoftplusOp{activation(
    "softplus", softplus_vjp,
    [](X x) { return std::fmax(x[0], 0.0) + std::log1p(std::exp(-std::abs(x[0]))); }, 30)};
Tensor softplus(Operand x) { return trace_unary(kSoftplusOp, x); }

const Op kSiluOp{activation(
    "silu", from_operand<silu_grad>, [](X x) { return x[0] * sigmoid_of(x[0]); }, 18)};
Tensor silu(Operand x) { return trace_unary(kSiluOp, x); }

const Op kGeluOp{activation(
    "gelu", from_operand<gelu_grad>, [](X x) { return x[0] * normal_cdf(x[0]); }, 25)};
Tensor gelu(Operand x) { return trace_unary(kGeluOp, x); }

const Op kGeluTanhOp{activation(
    "gelu_tanh", from_operand<gelu_tanh_grad>,
    [](X x) { return 0.5 * x[0] * (1.0 + std::tanh(gelu_argument(x[0]))); }, 22)};
Tensor gelu_tanh(Operand x) { return trace_unary(kGeluTanhOp, x); }

const Op kTanhGradOp{gradient(
    "tanh_grad", [](X x) { return x[1] * (1.0 - x[0] * x[0]); }, 1)};
Tensor tanh_grad(Operand y, Operand dy) { return trace_binary(kTanhGradOp, y, dy); }

const Op kSigmoidGradOp{gradient(
    "sigmoid_grad", [](X x) { return x[1] * x[0] * (1.0 - x[0]); }, 1)};
Tensor sigmoid_grad(Operand y, Operand dy) { return trace_binary(kSigmoidGradOp, y, dy); }

const Op kReluGradOp{gradient(
    "relu_grad", [](X x) { return x[0] > 0.0 ? x[1] : 0.0; }, 1)};
Tensor relu_grad(Operand y, Operand dy) { return trace_binary(kReluGradOp, y, dy); }

const Op kSiluGradOp{gradient(
    "silu_grad", [](X x) { return x[1] * silu_slope(x[0]); }, 20)};
Tensor silu_grad(Operand x, Operand dy) { return trace_binary(kSiluGradOp, x, dy); }

const Op kGeluGradOp{gradient(
    "gelu_grad", [](X x) { return x[1] * (normal_cdf(x[0]) + x[0] * normal_density(x[0])); }, 35)};
Tensor gelu_grad(Operand x, Operand dy) { return trace_binary(kGeluGradOp, x, dy); }

const Op kGeluTanhGradOp{gradient(
    "gelu_tanh_grad", [](X x) { return x[1] * gelu_tanh_slope(x[0]); }, 28)};
Tensor gelu_tanh_grad(Operand x, Operand dy) { return trace_binary(kGeluTanhGradOp, x, dy); }

}  // namespace tessera
