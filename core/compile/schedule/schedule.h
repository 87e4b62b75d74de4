// SPDX-License-Identifier: Apache-2.0
// The order of nodes: the traced order with two changes that save memory (greedy list scheduling).
// Updates and sums_of_collectives() run as soon as they can, so that gradients are
// freed early; inexpensive nodes that read only persistent values (casts of weights, constants) run
// just before their first reader. Linear in the edges of the graph.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Returns the graph with its nodes in that order, loop bodies too.
Graph schedule(Graph lowered);

// Returns the graph with each add of a stack in the loop that makes the stack.
Graph accumulate_in_loops(Graph lowered);

// Flags the nodes of a loop's body that add the result of a collective to an input, for the next
// iteration alone: as updates do, they free memory as soon as they run, and nothing waits for them.
NodeFlags sums_of_collectives(const Graph& body);

}  // namespace tessera
