// SPDX-License-Identifier: Apache-2.0
// Epilogues of matrix products: what is done to each element of a product moves into its node, for
// backends that apply it before they store the product (as GEMM libraries do). Before fuse(). Nodes
// are not moved to another phase. An activation whose result an elementwise node reads is left to
// fuse(). Loop bodies are treated separately. Linear in the graph.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Returns the graph with `fused_product` nodes. The body of one is an einsum or fp8_product, then,
// each at most once and in this order:
//   cast from bf16 to f32                 the sums are stored as they are
//   add of a bias                         with the axes of a row of the matrix
//   gelu_tanh, silu                       of which the operand may be a second result
//   or their gradients                    with the product as dy
//   or add of an array like the product   a sum of gradients, a residual
// Operands and results of the node are those of the body, as in `fused` (fuse.h).
Graph fuse_products(Graph lowered);

}  // namespace tessera
