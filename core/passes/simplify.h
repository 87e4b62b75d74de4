// SPDX-License-Identifier: Apache-2.0
// Dead code elimination and common subexpression elimination on lowered graphs.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Removes nodes that no output depends on, and carries, results and operands of loops that nobody
// reads.
Graph dce(const Graph& graph);

// Merges equal nodes, and results of a loop that equal each other or an operand. A remat clone is
// merged only with another clone. Elementwise work and generators of the backward pass are not
// merged with those of the forward pass, which would keep their results in memory in between.
Graph cse(const Graph& graph);

}  // namespace tessera
