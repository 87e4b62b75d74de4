// SPDX-License-Identifier: Apache-2.0
// The time of a collective on the links of a hardware file: its bytes, and the hops of a ring or a
// tree.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "tasks/planner/hardware/hardware.h"
#include "tasks/planner/prices/launch_cost.h"

namespace tessera {

// Prices a collective of a lowered graph that is alone on its links.
LaunchCost collective_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                           const Hardware& hardware);

// Whether one of the mesh axes spans slices, and whether a collective uses the links between them.
bool span_slices(const std::vector<std::string>& mesh_axes, const Mesh& mesh);
bool crosses_slices(const Node& collective, const Mesh& mesh);

}  // namespace tessera
