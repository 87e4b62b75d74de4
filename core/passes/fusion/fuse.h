// SPDX-License-Identifier: Apache-2.0
// Groups elementwise nodes with the same iteration space into `fused` nodes, which a backend runs
// as one loop without storing intermediate results.
//
// The body of a `fused` node has the operands and results of the node as inputs and outputs, in the
// same order and with the same types. Its nodes are elementwise ops, `broadcast`, and the
// generators constant, iota, causal_mask and one_hot; operands align by axis name, and may lack
// axes or have them in another order. Every output has the axes of the iteration space in the same
// order; values with fewer axes come from generators and inputs.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Only generators are computed more than once, and no node is moved after one of its readers. Loop
// bodies are fused separately.
Graph fuse(const Graph& lowered);

}  // namespace tessera
