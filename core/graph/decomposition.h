// SPDX-License-Identifier: Apache-2.0
// A composite op as a graph of simpler ops.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// The node's op must have a decomposition. The inputs and outputs of the result are the node's, in
// the same order, as whole arrays without layout; its nodes have the node's source line, layer path
// and phase.
Graph decomposition_of(const Graph& graph, const Node& node, const Mesh& mesh);

}  // namespace tessera
