// SPDX-License-Identifier: Apache-2.0
// What a legal graph is. Passes are checked with it: an Error here after a pass is that pass's bug,
// and names the stage, the node, its layer and its line.
#pragma once

#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Throws Error unless
// - values and nodes refer to each other rightly and nodes are in topological order;
// - every type is legal on the mesh, and each node's output types are what its op infers;
// - names of inputs are unique, those of outputs too;
// - outputs are not partial, and an update has the very type of the parameter or state it replaces;
// - bodies are legal graphs, and those of loops keep the contract of ops/repeat.h.
void verify(const Graph& graph, const Mesh& mesh, std::string_view stage = "trace");

}  // namespace tessera
