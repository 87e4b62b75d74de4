// SPDX-License-Identifier: Apache-2.0
// Dead and double work removed from a lowered graph: the last part of lowering.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Nodes that no output depends on are dropped, in loops also the carries, results and operands that
// nobody reads; a loop's results that equal one another, or an operand, are one.
Graph dce(const Graph& graph);

// Equal nodes become the first of them. A remat clone is only merged with a clone, and cheap
// elementwise work of the backward pass not with the forward pass's: reading it back would keep it
// in memory from one to the other.
Graph cse(const Graph& graph);

}  // namespace tessera
