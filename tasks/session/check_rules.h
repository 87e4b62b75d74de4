// SPDX-License-Identifier: Apache-2.0
// Finds axis rules that can never apply: to a mesh axis that is not there, of an axis that no
// tensor of the step has, or of a role that looks misspelt; and mesh axes that no rule makes use
// of. Whether the layouts they give are sound is the types' business.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/rules.h"

namespace tessera {

// Error, with the nearest name, for a rule that splits over an axis the mesh lacks.
void check_rules(const AxisRules& rules, const Mesh& mesh);

// Error, with the nearest name, for a rule of an axis that neither `traced` nor the vocabulary
// (docs/graph.md) has.
void check_rules(const AxisRules& rules, const Graph& traced);

// A warning for each mesh axis of several devices over which `traced` splits no tensor, be it by
// rules, by a layout in words or by how the batch arrives: these devices repeat each other's work.
std::vector<std::string> idle_mesh_axes(const AxisRules& rules, const Mesh& mesh,
                                        const Graph& traced);

}  // namespace tessera
