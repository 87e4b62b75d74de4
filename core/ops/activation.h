// SPDX-License-Identifier: Apache-2.0
// Activation functions and their gradients as single elementwise ops. Of a gradient (saved, dy):
// saved is the function's operand x or, where that is cheaper, its result y; linear in dy.
#pragma once

#include "core/graph/tensor.h"

namespace tessera {

Tensor tanh(Operand x);
Tensor sigmoid(Operand x);
Tensor relu(Operand x);
Tensor softplus(Operand x);   // log(1 + e^x).
Tensor silu(Operand x);       // x·sigmoid(x), also called swish.
Tensor gelu(Operand x);       // Exact: x·Φ(x).
Tensor gelu_tanh(Operand x);  // The tanh approximation (Hendrycks and Gimpel, 2016).

Tensor tanh_grad(Operand y, Operand dy);
Tensor sigmoid_grad(Operand y, Operand dy);
Tensor relu_grad(Operand y, Operand dy);
Tensor silu_grad(Operand x, Operand dy);
Tensor gelu_grad(Operand x, Operand dy);
Tensor gelu_tanh_grad(Operand x, Operand dy);

}  // namespace tessera
