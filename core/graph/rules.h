// SPDX-License-Identifier: Apache-2.0
// Axis rules: ordered maps from logical axes to mesh axes (as in Flax and Haliax), one for stored
// weights and one for activations. Activation rules may have a role such as "residual".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/type.h"

namespace tessera {

struct AxisRule {
  std::string axis;               // Logical axis.
  std::vector<std::string> mesh;  // Mesh axes, outermost first; empty: never split.
  std::string role;               // "" for every role.
  bool operator==(const AxisRule&) const = default;
};

struct AxisRules {
  std::vector<AxisRule> weights;
  std::vector<AxisRule> activations;
  bool operator==(const AxisRules&) const = default;
};

// Parses "embed -> data, mlp -> mdl, batch -> (replica, data), residual: seq -> mdl". Errors give
// the position.
std::vector<AxisRule> parse_rules(std::string_view text);
std::string rules_text(const std::vector<AxisRule>& rules);

// Returns `own`, followed by the rules of `general` whose axis `own` does not name in the same role
// or for all roles. Puts a layer's rules before those of the experiment.
std::vector<AxisRule> overlay_rules(const std::vector<AxisRule>& own,
                                    const std::vector<AxisRule>& general);

// Gives a type the layout of the rules for its axes. Rules of `role` precede rules without a role;
// the first axis that claims a mesh axis gets it. Existing splits and the partial are removed.
// Error with the nearest name if the mesh lacks a mesh axis.
Type apply_rules(const std::vector<AxisRule>& rules, const Mesh& mesh, Type type,
                 std::string_view role = "");

}  // namespace tessera
