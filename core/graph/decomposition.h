// SPDX-License-Identifier: Apache-2.0
// A composite op as a graph of simpler ops.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Decomposes a node, whose op must have a decomposition. The inputs and outputs of the result are
// the node's, in the same order, as whole arrays without layout; its nodes have the node's source
// line, layer path and phase.
Graph decomposition_of(const Graph& graph, const Node& node, const Mesh& mesh);

// Returns the graph that `trace` makes of operands of these types, to replace `node`. Its nodes
// have the node's source line, layer path and phase.
Graph traced_for(const Node& node, const std::vector<Type>& operands, const Mesh& mesh,
                 const std::function<std::vector<Tensor>(std::span<const Tensor>)>& trace);

}  // namespace tessera
