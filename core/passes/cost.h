// SPDX-License-Identifier: Apache-2.0
// What a graph costs, from types alone.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Multiplications and additions of one node, loops and fused bodies run out.
double node_flops(const Graph& graph, const Node& node);
double graph_flops(const Graph& graph);

}  // namespace tessera
