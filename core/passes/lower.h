// SPDX-License-Identifier: Apache-2.0
// From global types to the program one device runs: local types, reshards lowered.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Every type becomes its local type; reshards, save marks, stop_gradients and casts to the dtype at
// hand vanish. Dead nodes are dropped and equal pure nodes merged (remat clones excepted). Error if
// the mesh has more than one device: this version executes on one.
Graph lower(const Graph& graph, const Mesh& mesh);

}  // namespace tessera
