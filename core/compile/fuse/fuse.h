// SPDX-License-Identifier: Apache-2.0
// Fusion of elementwise nodes, which a backend runs as one loop without storing intermediate
// results. Groups grow greedily, from consumers to producers and to siblings with the same operand
// (as in XLA's instruction fusion), while the order of their producers and readers permits it. Only
// generators are computed more than once, and no node is moved after one of its readers. Loop
// bodies are fused separately. About linear: a group has at most 48 nodes. And the fusions of other
// nodes, each described in its own file.
#pragma once

#include <string>
#include <string_view>

#include "core/graph/graph.h"

namespace tessera {

// Groups elementwise nodes with the same iteration space into `fused` nodes.
//
// The body of a `fused` node has the operands and results of the node as inputs and outputs, in the
// same order and with the same types. Its nodes are elementwise ops, `broadcast`, and the
// generators constant, iota, causal_mask and one_hot; operands align by axis name, and may lack
// axes or have them in another order. Every output has the axes of the iteration space in the same
// order; values with fewer axes come from generators and inputs.
Graph fuse(Graph lowered);

// Returns the graph with `fused_norm` nodes. The body of one is an add of two arrays like the sum,
// then rms_norm or layer_norm of it; results are the norm's, then the sum if others read it. Or it
// is rms_norm_grad or layer_norm_grad, then the add of its dx; results are the gradient's, with the
// sum for dx.
Graph fuse_norms(Graph lowered);

// Returns the graph with `fused_product` nodes. The body of one is an einsum or fp8_product, then,
// each at most once and in this order:
//   cast from bf16 to f32                 the sums are stored as they are
//   add of a bias                         with the axes of a row of the matrix
//   gelu_tanh, silu                       of which the operand may be a second result
//   or their gradients                    with the product as dy
//   or add of an array like the product   a sum of gradients, a residual
// Operands and results of the node are those of the body, as in `fused`.
Graph fuse_products(Graph lowered);

// The body of a `fused_updates` node has adam_update nodes with the same scalar operands, moments
// of the same dtypes and equal attributes except weight_decay and those of their noise, each
// followed by the cast of the new parameter to bf16 if there is one. Its results are all of theirs
// in the same order.
Graph fuse_updates(Graph lowered);

// Keeps a copy in bf16 of each f32 parameter that adam_update writes and casts read. The copy is a
// further state, copy_name(parameter). It must be made from the parameter before the first step,
// and whenever something else has written the parameter.
Graph keep_copies(Graph lowered);
std::string copy_name(std::string_view parameter);

}  // namespace tessera
