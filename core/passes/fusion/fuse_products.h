// SPDX-License-Identifier: Apache-2.0
// Moves what is done to each element of a matrix product into the node of the product, for backends
// that apply it before they store the product (the epilogue of a GEMM library).
//
// The body of a `fused_product` node is an einsum, then, each at most once and in this order:
//   cast from bf16 to f32                 the sums are stored as they are
//   add of a bias                         with the axes of a row of the matrix
//   gelu_tanh, silu                       of which the operand may be a second result
//   or their gradients                    with the product as dy
//   or add of an array like the product   a sum of gradients, a residual
// Operands and results of the node are those of the body, as in `fused`.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Before fuse(). Nodes are not moved to another phase. Loop bodies are treated separately.
Graph fuse_products(const Graph& lowered);

}  // namespace tessera
