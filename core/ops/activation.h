// SPDX-License-Identifier: Apache-2.0
// Activation functions, each one elementwise op, and their gradients. A gradient takes (saved, dy):
// `saved` is the function's operand x or, where that is cheaper, its result y. It is linear in dy.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

Tensor tanh(Operand x);
Tensor sigmoid(Operand x);
Tensor relu(Operand x);
Tensor softplus(Operand x);   // log(1 + e^x).
Tensor silu(Operand x);       // x·sigmoid(x), also called swish.
Tensor gelu(Operand x);       // Exact: x·Φ(x).
Tensor gelu_tanh(Operand x);  // The tanh approximation (Hendrycks and Gimpel, 2016).
extern const Op kTanhOp, kSigmoidOp, kReluOp, kSoftplusOp, kSiluOp, kGeluOp, kGeluTanhOp;

Tensor tanh_grad(Operand y, Operand dy);
Tensor sigmoid_grad(Operand y, Operand dy);
Tensor relu_grad(Operand y, Operand dy);
Tensor silu_grad(Operand x, Operand dy);
Tensor gelu_grad(Operand x, Operand dy);
Tensor gelu_tanh_grad(Operand x, Operand dy);
extern const Op kTanhGradOp, kSigmoidGradOp, kReluGradOp, kSiluGradOp, kGeluGradOp, kGeluTanhGradOp;

}  // namespace tessera
