// SPDX-License-Identifier: Apache-2.0
// Passes over the lowered graph of one device, in the order of compilation: dead code elimination
// and common subexpression elimination (simplify.cc), composite ops without a kernel
// (decompose.cc), sums over loops (accumulate.cc), copies of parameters in bf16 (keep_copies.cc),
// fusion of updates (fuse_updates.cc), of elementwise nodes with products (fuse_products.cc) and
// with each other (fuse.cc), of norms with the sums beside them (fuse_norms.cc), and the order of
// nodes (schedule.cc). They take the graph by value: what they do not change, they move.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// Removes nodes that no output depends on, and carries, results and operands of loops that nobody
// reads.
Graph dce(Graph graph);

// Merges equal nodes, and results of a loop that equal each other or an operand. A remat clone is
// merged only with another clone. Elementwise work and generators of the backward pass are not
// merged with those of the forward pass, which would keep their results in memory in between.
Graph cse(Graph graph);

// Replaces composite ops for which the device has no kernel by their decompositions, and merges
// equal nodes of these.
Graph decompose(Graph lowered, const std::function<bool(const OpDef&)>& has_kernel);

// Gradients that are summed over microbatches: where a loop over layers makes a stack of gradients
// that is added to an input, moves the add into the loop, slice by slice. The stack is then not
// stored, and the product that makes a slice, or the wait for its collective, is near the add. The
// same bits. Loop bodies are treated alike.
Graph accumulate_in_loops(Graph lowered);

// The nodes of a loop's body that add the result of a collective to an input, for the next
// iteration alone: as updates do, they free memory as soon as they run, and nothing waits for them.
NodeFlags sums_of_collectives(const Graph& body);

// Groups elementwise nodes with the same iteration space into `fused` nodes, which a backend runs
// as one loop without storing intermediate results. Only generators are computed more than once,
// and no node is moved after one of its readers. Loop bodies are fused separately.
//
// The body of a `fused` node has the operands and results of the node as inputs and outputs, in the
// same order and with the same types. Its nodes are elementwise ops, `broadcast`, and the
// generators constant, iota, causal_mask and one_hot; operands align by axis name, and may lack
// axes or have them in another order. Every output has the axes of the iteration space in the same
// order; values with fewer axes come from generators and inputs.
Graph fuse(Graph lowered);

// Moves what is done to each element of a matrix product into the node of the product, for backends
// that apply it before they store the product (the epilogue of a GEMM library). Before fuse().
// Nodes are not moved to another phase. An activation whose result an elementwise node reads is
// left to fuse(). Loop bodies are treated separately.
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

// Makes one node of a norm and the add of its operand, or of the gradient of a norm and the add of
// its dx and another cotangent: the two sums of a residual. Behind fuse_products(), which adds a
// residual to a product before it is stored, and before fuse(). Loop bodies are treated separately.
//
// The body of a `fused_norm` node is an add of two arrays like the sum, then rms_norm or layer_norm
// of it; results are the norm's, then the sum if others read it. Or it is rms_norm_grad or
// layer_norm_grad, then the add of its dx; results are the gradient's, with the sum for dx.
Graph fuse_norms(Graph lowered);

// Keeps a copy in bf16 of each f32 parameter that adam_update writes and casts read, so that a step
// need not cast: the update stores the new parameter in both dtypes. The copy is a further state,
// copy_name(parameter). It must be made from the parameter before the first step, and whenever
// something else has written the parameter. Before fuse_updates().
Graph keep_copies(Graph lowered);
std::string copy_name(std::string_view parameter);

// Groups the adam_update nodes of parameters into `fused_updates` nodes, which a backend runs as
// one launch. Only updates that wait for all gradients anyway, because the clip scale or the
// decision to skip the step depends on them: others run as soon as they can, which frees their
// gradient. Before fuse().
//
// The body of a `fused_updates` node has adam_update nodes with the same scalar operands, moments
// of the same dtypes and equal attributes except weight_decay and those of their noise, each
// followed by the cast of the new parameter to bf16 if there is one. Its results are all of theirs
// in the same order.
Graph fuse_updates(Graph lowered);

// The traced order with two changes that save memory. Updates and sums_of_collectives() run as soon
// as they can, so that gradients are freed early; inexpensive nodes that read only persistent
// values (casts of weights, constants) run just before their first reader.
Graph schedule(Graph lowered);

}  // namespace tessera
