// SPDX-License-Identifier: Apache-2.0
// Checks that a graph is legal, after tracing and after each pass. An Error after a pass is a bug
// of that pass; it names the stage, the node, its layer and its source line.
#pragma once

#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Throws Error unless
// - values and nodes refer to each other consistently, and nodes are in topological order;
// - every type is legal on the mesh, and the output types of a node are those its op infers;
// - names of inputs are unique, and names of outputs;
// - outputs are not partial, and an update has the type of the parameter or state it replaces;
// - bodies are legal graphs, and those of loops follow the contract of core/ops/repeat.h.
void verify(const Graph& graph, const Mesh& mesh, std::string_view stage = "trace");

}  // namespace tessera
