// SPDX-License-Identifier: Apache-2.0
// The order of nodes: the traced order with two changes that save memory (greedy list scheduling).
// Updates and sums_of_collectives() (accumulate.h) run as soon as they can, so that gradients are
// freed early; inexpensive nodes that read only persistent values (casts of weights, constants) run
// just before their first reader. Linear in the edges of the graph.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Returns the graph with its nodes in that order, loop bodies too.
Graph schedule(Graph lowered);

}  // namespace tessera
