// SPDX-License-Identifier: Apache-2.0
// Checks of axis rules: a mesh axis that does not exist, a logical axis that no tensor has, a
// misspelt role, and mesh axes over which nothing is sharded.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/rules.h"

namespace tessera {

// Error, with the nearest name, for a rule with an unknown mesh axis; and for one that names
// `stage`, unless it is the rule layers -> stage of weights.
void check_rules(const AxisRules& rules, const Mesh& mesh);

// Error, with the nearest name, for a rule whose logical axis is neither in `traced` nor in the
// vocabulary (docs/graph.md). With the rule layers -> stage, also for a value that has another axis
// split over `stage`.
void check_rules(const AxisRules& rules, const Graph& traced);

// A warning for each mesh axis of size > 1 over which `traced` shards no tensor: its devices repeat
// each other's work.
std::vector<std::string> idle_mesh_axes(const AxisRules& rules, const Mesh& mesh,
                                        const Graph& traced);

}  // namespace tessera
