// SPDX-License-Identifier: Apache-2.0
// A graph as a drawing: a box a node in the box of its layer, pending sums dashed, what
// communicates in red. Needs no other program to make or to view (any browser).
#pragma once

#include <string>

#include "core/graph/graph.h"

namespace tessera {

std::string graph_svg(const Graph& graph);

}  // namespace tessera
