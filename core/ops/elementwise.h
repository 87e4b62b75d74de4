// SPDX-License-Identifier: Apache-2.0
// Elementwise ops. Operands align axes by name; an operand may lack axes of the other (it is then
// broadcast). The result has the axes of the operand that has them all, else those of the left one
// followed by the others of the right one. docs/graph.md has the results for split and partial
// operands. Results have the operands' dtype; operands of different dtypes are an Error (cast one).
#pragma once

#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

namespace key {
inline constexpr AttributeName<double> kFactor{"factor"};
}  // namespace key
// Linear in their operand: pass partial sums through.
Tensor neg(Operand x);
Tensor scale(Operand x, double factor);
Tensor stop_gradient(Operand x);

Tensor exp(Operand x);
Tensor log(Operand x);
Tensor sqrt(Operand x);
Tensor rsqrt(Operand x);
Tensor square(Operand x);
Tensor abs(Operand x);
Tensor sign(Operand x);  // -1, 0 or 1; no gradient.
Tensor sin(Operand x);
Tensor cos(Operand x);
Tensor erf(Operand x);

Tensor add(Operand a, Operand b);
Tensor sub(Operand a, Operand b);
Tensor mul(Operand a, Operand b);
Tensor div(Operand a, Operand b);
Tensor pow(Operand a, Operand b);
Tensor maximum(Operand a, Operand b);  // Gradient to the larger; to `a` on a tie.
Tensor minimum(Operand a, Operand b);

// To bool; no gradient.
Tensor equal(Operand a, Operand b);
Tensor less(Operand a, Operand b);
Tensor less_equal(Operand a, Operand b);
Tensor logical_and(Operand a, Operand b);
Tensor logical_or(Operand a, Operand b);
Tensor logical_not(Operand a);
Tensor is_finite(Operand x);

// condition ? a : b, by element; `condition` is bool.
Tensor where(Operand condition, Operand a, Operand b);
// x where the condition holds, else 0. Linear in x, so a partial sum passes through.
Tensor mask(Operand x, Operand condition);

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

extern const Op kNegOp, kScaleOp, kStopGradientOp, kExpOp, kLogOp, kSqrtOp, kRsqrtOp, kSquareOp,
    kAbsOp, kSignOp, kSinOp, kCosOp, kErfOp;
extern const Op kAddOp, kSubOp, kMulOp, kDivOp, kPowOp, kMaximumOp, kMinimumOp, kEqualOp, kLessOp,
    kLessEqualOp, kLogicalAndOp, kLogicalOrOp, kLogicalNotOp, kIsFiniteOp, kWhereOp, kMaskOp;

// Activation functions, each one elementwise op, and their gradients. A gradient takes (saved, dy):
// `saved` is the function's operand x or, where that is cheaper, its result y. It is linear in dy.

Tensor tanh(Operand x);
Tensor sigmoid(Operand x);
Tensor relu(Operand x);
Tensor softplus(Operand x);              // log(1 + e^x).
Tensor silu(Operand x);                  // x·sigmoid(x), also called swish.
Tensor gelu(Operand x);                  // Exact: x·Φ(x).
Tensor gelu_tanh(Operand x);             // The tanh approximation (Hendrycks and Gimpel, 2016).
Tensor soft_cap(Operand x, double cap);  // cap·tanh(x/cap), if cap > 0; else x.
Tensor soft_cap_grad(Operand y, Operand dy, double cap);
extern const Op kTanhOp, kSigmoidOp, kReluOp, kSoftplusOp, kSiluOp, kGeluOp, kGeluTanhOp;

Tensor tanh_grad(Operand y, Operand dy);
Tensor sigmoid_grad(Operand y, Operand dy);
Tensor relu_grad(Operand y, Operand dy);
Tensor silu_grad(Operand x, Operand dy);
Tensor gelu_grad(Operand x, Operand dy);
Tensor gelu_tanh_grad(Operand x, Operand dy);
extern const Op kTanhGradOp, kSigmoidGradOp, kReluGradOp, kSiluGradOp, kGeluGradOp, kGeluTanhGradOp;

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
