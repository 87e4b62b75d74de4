// SPDX-License-Identifier: Apache-2.0
// Groups elementwise nodes of one iteration space into `fused` nodes, which a backend runs as one
// loop without storing what stays inside.
//
// A `fused` node: bodies[0] is a graph whose inputs and outputs are the node's, in order and of the
// same types. Its nodes are elementwise ops, `broadcast`, and the generators constant, iota,
// causal_mask and one_hot; operands align by axis name, and may lack axes or have them in another
// order. Every output has the axes of the iteration space, in one order; a value inside that has
// fewer comes from a generator or an input.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Nothing is computed twice but generators, and nothing is put off across a node that would read
// it. Bodies of loops are fused in themselves.
Graph fuse(const Graph& lowered);

}  // namespace tessera
