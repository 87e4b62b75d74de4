// SPDX-License-Identifier: Apache-2.0
// Fusion of elementwise nodes, which a backend runs as one loop without storing intermediate
// results. Groups grow greedily, from consumers to producers and to siblings with the same operand
// (as in XLA's instruction fusion), while the order of their producers and readers permits it. Only
// generators are computed more than once, and no node is moved after one of its readers. Loop
// bodies are fused separately. About linear: a group has at most 48 nodes.
#pragma once

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

}  // namespace tessera
