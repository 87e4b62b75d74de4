// SPDX-License-Identifier: Apache-2.0
// Sums of gradients over microbatches. Where a loop over layers makes a stack of gradients that is
// added to an input, the add moves into the loop, slice by slice. The stack is then not stored, and
// the product that makes a slice, or the wait for its collective, is near the add. The bits are the
// same. Loop bodies are treated alike. Linear in the graph.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Returns the graph with each add of a stack in the loop that makes the stack.
Graph accumulate_in_loops(Graph lowered);

// Flags the nodes of a loop's body that add the result of a collective to an input, for the next
// iteration alone: as updates do, they free memory as soon as they run, and nothing waits for them.
NodeFlags sums_of_collectives(const Graph& body);

}  // namespace tessera
