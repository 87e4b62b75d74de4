// SPDX-License-Identifier: Apache-2.0
// Finds axis rules that can never apply (an unknown mesh axis, an axis that no tensor of the step
// has, a role that looks misspelt) and mesh axes that no rule uses. Whether the layouts are legal
// is checked by the types.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/rules.h"

namespace tessera {

// Error, with the nearest name, for a rule that splits over an axis the mesh lacks.
void check_rules(const AxisRules& rules, const Mesh& mesh);

// Error, with the nearest name, for a rule of an axis that is neither in `traced` nor in the
// vocabulary (docs/graph.md).
void check_rules(const AxisRules& rules, const Graph& traced);

// A warning for each mesh axis of several devices over which `traced` shards no tensor: these
// devices all do the same work.
std::vector<std::string> idle_mesh_axes(const AxisRules& rules, const Mesh& mesh,
                                        const Graph& traced);

}  // namespace tessera
