// SPDX-License-Identifier: Apache-2.0
// Axis rules: the experiment's ordered maps from logical axes to mesh axes, one for weights (at
// rest) and one for activations (compute), the latter with optional roles such as "residual".
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

// "embed -> data, mlp -> mdl, batch -> (replica, data), residual: seq -> mdl". Error with the
// position on bad syntax.
std::vector<AxisRule> parse_rules(std::string_view text);
std::string rules_text(const std::vector<AxisRule>& rules);

// `own` first, then those of `general` for axes that `own` does not name in the same role or for
// all roles: a layer's rules before the experiment's.
std::vector<AxisRule> overlay_rules(const std::vector<AxisRule>& own,
                                    const std::vector<AxisRule>& general);

// The layout the rules give a tensor with these axes: rules of `role` come before general ones, a
// mesh axis serves the first axis of the tensor that claims it, existing splits are replaced, and
// partials end. Mesh axes the mesh lacks are an Error with the nearest name.
Type apply_rules(const std::vector<AxisRule>& rules, const Mesh& mesh, Type type,
                 std::string_view role = "");

}  // namespace tessera
