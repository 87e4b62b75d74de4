// SPDX-License-Identifier: Apache-2.0
// Dead code elimination and common subexpression elimination, of traced and of lowered graphs. dce:
// uses are marked backwards from the outputs, through the bodies of loops to a fixed point, because
// the next iteration may read a carry. cse: hash-based value numbering (Cocke and Schwartz, 1970)
// in the order of the nodes. Both are linear in the graph, but for loops inside of loops. Nodes
// that communicate with devices of other programs stay (core/ops/send.h).
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Removes nodes that no output depends on, and carries, results and operands of loops that nobody
// reads.
Graph dce(Graph graph);

// Removes parameters and state that the graph neither reads nor updates.
Graph without_unread_state(Graph graph);

// Merges equal nodes, and results of a loop that equal each other or an operand. A remat clone is
// merged only with another clone. Elementwise work and generators of the backward pass are not
// merged with those of the forward pass, which would keep their results in memory in between.
Graph cse(Graph graph);

}  // namespace tessera
