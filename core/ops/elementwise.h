// SPDX-License-Identifier: Apache-2.0
// Elementwise ops. Operands align axes by name; an operand may lack axes of the other (it is then
// broadcast). The result has the axes of the operand that has them all, else those of the left one
// followed by the others of the right one. docs/graph.md has the results for split and partial
// operands. Results have the operands' dtype; operands of different dtypes are an Error (cast one).
#pragma once

#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"

namespace tessera {

namespace key {
inline constexpr AttributeName<double> kFactor{"factor"};
}  // namespace key

extern const Op kNegOp, kScaleOp, kStopGradientOp, kExpOp, kLogOp, kSqrtOp, kRsqrtOp, kSquareOp,
    kAbsOp, kSignOp, kSinOp, kCosOp, kErfOp;
extern const Op kAddOp, kSubOp, kMulOp, kDivOp, kPowOp, kMaximumOp, kMinimumOp, kEqualOp, kLessOp,
    kLessEqualOp, kLogicalAndOp, kLogicalOrOp, kLogicalNotOp, kIsFiniteOp, kWhereOp, kMaskOp;

// Linear in their operand: pass partial sums through.
inline Tensor neg(Operand x) { return trace_unary(kNegOp, x); }
Tensor scale(Operand x, double factor);
inline Tensor stop_gradient(Operand x) { return trace_unary(kStopGradientOp, x); }

inline Tensor exp(Operand x) { return trace_unary(kExpOp, x); }
inline Tensor log(Operand x) { return trace_unary(kLogOp, x); }
inline Tensor sqrt(Operand x) { return trace_unary(kSqrtOp, x); }
inline Tensor rsqrt(Operand x) { return trace_unary(kRsqrtOp, x); }
inline Tensor square(Operand x) { return trace_unary(kSquareOp, x); }
inline Tensor abs(Operand x) { return trace_unary(kAbsOp, x); }
inline Tensor sign(Operand x) { return trace_unary(kSignOp, x); }  // -1, 0 or 1; no gradient.
inline Tensor sin(Operand x) { return trace_unary(kSinOp, x); }
inline Tensor cos(Operand x) { return trace_unary(kCosOp, x); }
inline Tensor erf(Operand x) { return trace_unary(kErfOp, x); }

inline Tensor add(Operand a, Operand b) { return trace_binary(kAddOp, a, b); }
inline Tensor sub(Operand a, Operand b) { return trace_binary(kSubOp, a, b); }
inline Tensor mul(Operand a, Operand b) { return trace_binary(kMulOp, a, b); }
inline Tensor div(Operand a, Operand b) { return trace_binary(kDivOp, a, b); }
inline Tensor pow(Operand a, Operand b) { return trace_binary(kPowOp, a, b); }
// Gradient to the larger (the smaller); to `a` on a tie.
inline Tensor maximum(Operand a, Operand b) { return trace_binary(kMaximumOp, a, b); }
inline Tensor minimum(Operand a, Operand b) { return trace_binary(kMinimumOp, a, b); }

// To bool; no gradient.
inline Tensor equal(Operand a, Operand b) { return trace_binary(kEqualOp, a, b); }
inline Tensor less(Operand a, Operand b) { return trace_binary(kLessOp, a, b); }
inline Tensor less_equal(Operand a, Operand b) { return trace_binary(kLessEqualOp, a, b); }
inline Tensor logical_and(Operand a, Operand b) { return trace_binary(kLogicalAndOp, a, b); }
inline Tensor logical_or(Operand a, Operand b) { return trace_binary(kLogicalOrOp, a, b); }
inline Tensor logical_not(Operand a) { return trace_unary(kLogicalNotOp, a); }
inline Tensor is_finite(Operand x) { return trace_unary(kIsFiniteOp, x); }

// condition ? a : b, by element; `condition` is bool.
Tensor where(Operand condition, Operand a, Operand b);
// x where the condition holds, else 0. Linear in x, so a partial sum passes through.
inline Tensor mask(Operand x, Operand condition) { return trace_binary(kMaskOp, x, condition); }

inline Tensor operator+(Operand a, Operand b) { return add(a, b); }
inline Tensor operator-(Operand a, Operand b) { return sub(a, b); }
inline Tensor operator*(Operand a, Operand b) { return mul(a, b); }
inline Tensor operator/(Operand a, Operand b) { return div(a, b); }
inline Tensor operator-(Operand a) { return neg(a); }
inline Tensor operator*(Operand a, double b) { return scale(a, b); }
inline Tensor operator*(double a, Operand b) { return scale(b, a); }
inline Tensor operator/(Operand a, double b) { return scale(a, 1.0 / b); }
Tensor operator+(Operand a, double b);
Tensor operator-(Operand a, double b);
Tensor operator-(double a, Operand b);
inline Tensor operator+(double a, Operand b) { return b + a; }

// Activation functions, each one elementwise op, and their gradients. A gradient takes (saved, dy):
// `saved` is the function's operand x or, where that is cheaper, its result y. It is linear in dy.

extern const Op kTanhOp, kSigmoidOp, kReluOp, kSoftplusOp, kSiluOp, kGeluOp, kGeluTanhOp;
extern const Op kTanhGradOp, kSigmoidGradOp, kReluGradOp, kSiluGradOp, kGeluGradOp, kGeluTanhGradOp;

inline Tensor tanh(Operand x) { return trace_unary(kTanhOp, x); }
inline Tensor sigmoid(Operand x) { return trace_unary(kSigmoidOp, x); }
inline Tensor relu(Operand x) { return trace_unary(kReluOp, x); }
inline Tensor softplus(Operand x) { return trace_unary(kSoftplusOp, x); }  // log(1 + e^x).
inline Tensor silu(Operand x) { return trace_unary(kSiluOp, x); }          // x·sigmoid(x): swish.
inline Tensor gelu(Operand x) { return trace_unary(kGeluOp, x); }          // Exact: x·Φ(x).
// The tanh approximation (Hendrycks and Gimpel, 2016).
inline Tensor gelu_tanh(Operand x) { return trace_unary(kGeluTanhOp, x); }
Tensor soft_cap(Operand x, double cap);  // cap·tanh(x/cap), if cap > 0; else x.
Tensor soft_cap_grad(Operand y, Operand dy, double cap);

inline Tensor tanh_grad(Operand y, Operand dy) { return trace_binary(kTanhGradOp, y, dy); }
inline Tensor sigmoid_grad(Operand y, Operand dy) { return trace_binary(kSigmoidGradOp, y, dy); }
inline Tensor relu_grad(Operand y, Operand dy) { return trace_binary(kReluGradOp, y, dy); }
inline Tensor silu_grad(Operand x, Operand dy) { return trace_binary(kSiluGradOp, x, dy); }
inline Tensor gelu_grad(Operand x, Operand dy) { return trace_binary(kGeluGradOp, x, dy); }
inline Tensor gelu_tanh_grad(Operand x, Operand dy) { return trace_binary(kGeluTanhGradOp, x, dy); }

// The arithmetic of backends: f32 for f32 and bf16, 32-bit integers, truth values.
enum class Lane { kFloat, kInt, kTruth };

// Returns the lane; Error, naming the backend, for u32 and f64: only the reference interpreter has
// them.
Lane lane_of(DType dtype, std::string_view backend);

// Returns whether a loop that keeps the result in an f32 lane must round it before another node
// reads it: it is bf16, and the op may give more digits. So a value has the same bits whether it is
// stored, recomputed, or stays in the loop.
bool needs_rounding(const Graph& graph, const Node& node);

// Returns the dtype of an elementwise op's first operand that is not a condition; bool if all are.
DType operand_dtype(const Graph& graph, const Node& node);

}  // namespace tessera
