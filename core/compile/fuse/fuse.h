// SPDX-License-Identifier: Apache-2.0
// Fusion of nodes into launches, for backends that have kernels of them. Each pass is about linear
// in the graph, and runs in the order of this file; loop bodies are fused separately.
#pragma once

#include <string>
#include <string_view>

#include "core/graph/graph.h"

namespace tessera {

// Copies of parameters in bf16 that outlive a step: the update of an f32 parameter stores it in
// both dtypes, and the casts that read it disappear. Keeps a copy of each f32 parameter that
// adam_update writes and casts read. The copy is a further state, copy_name(parameter). It must be
// made from the parameter before the first step, and whenever something else has written the
// parameter.
Graph keep_copies(Graph lowered);
std::string copy_name(std::string_view parameter);

// Multi-tensor updates: the adam_update nodes of parameters become `fused_updates` nodes, which a
// backend runs as one launch. Only updates that wait for all gradients anyway, because the clip
// scale or the decision to skip the step depends on them: others run as soon as they can, which
// frees their gradient.
//
// The body of a `fused_updates` node has adam_update nodes with the same scalar operands, moments
// of the same dtypes and equal attributes except weight_decay and those of their noise, each
// followed by the cast of the new parameter to bf16 if there is one. Its results are all of theirs
// in the same order.
Graph fuse_updates(Graph lowered);

// Epilogues of matrix products: what is done to each element of a product moves into its node, for
// backends that apply it before they store the product (as GEMM libraries do). Nodes are not moved
// to another phase. An activation whose result an elementwise node reads is left to fuse().
//
// The body of a `fused_product` node is an einsum or fp8_product, then, each at most once and in
// this order:
//   cast from bf16 to f32                 the sums are stored as they are
//   add of a bias                         with the axes of a row of the matrix
//   gelu_tanh, silu                       of which the operand may be a second result
//   or their gradients                    with the product as dy
//   or add of an array like the product   a sum of gradients, a residual
// Operands and results of the node are those of the body, as in `fused`.
Graph fuse_products(Graph lowered);

// Residual sums beside norms: a norm and the add of its operand, or the gradient of a norm and the
// add of its dx and another cotangent, become one node. After fuse_products(), which adds a
// residual to a product before it is stored.
//
// The body of a `fused_norm` node is an add of two arrays like the sum, then rms_norm or layer_norm
// of it; results are the norm's, then the sum if others read it. Or it is rms_norm_grad or
// layer_norm_grad, then the add of its dx; results are the gradient's, with the sum for dx.
Graph fuse_norms(Graph lowered);

// Groups elementwise nodes with the same iteration space into `fused` nodes, which a backend runs
// as one loop without storing intermediate results. Groups grow greedily, from consumers to
// producers and to siblings with the same operand (as in XLA's instruction fusion), while the order
// of their producers and readers permits it; a group has at most 48 nodes. Only generators are
// computed more than once, and no node is moved after one of its readers.
//
// The body of a `fused` node has the operands and results of the node as inputs and outputs, in the
// same order and with the same types. Its nodes are elementwise ops, `broadcast`, and the
// generators constant, iota, causal_mask and one_hot; operands align by axis name, and may lack
// axes or have them in another order. Every output has the axes of the iteration space in the same
// order; values with fewer axes come from generators and inputs.
Graph fuse(Graph lowered);

}  // namespace tessera
