// SPDX-License-Identifier: Apache-2.0
#include "tasks/check_rules.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace tessera {
namespace {

// Axes that rules may speak of whether or not the model at hand has them, so that one set of rules
// serves many models.
const std::vector<std::string> kVocabulary = {"batch", "seq",      "key_seq",  "embed",
                                              "heads", "kv_heads", "head_dim", "mlp",
                                              "vocab", "layers",   "experts"};
const std::vector<std::string> kRoles = {"residual"};

void add_axes(const Graph& graph, std::set<std::string>* axes) {
  for (const Value& value : graph.values())
    for (const Axis& axis : value.type.axes) axes->insert(axis.name);
  for (const Node& node : graph.nodes())
    for (const auto& body : node.bodies) add_axes(*body, axes);
}

void check(std::string_view which, const std::vector<AxisRule>& rules,
           const std::set<std::string>& known) {
  const std::vector<std::string> names(known.begin(), known.end());
  for (const AxisRule& rule : rules) {
    if (known.count(rule.axis) == 0)
      fail("rules.{}: no tensor has an axis '{}'{}", which, rule.axis,
           did_you_mean(rule.axis, names));
    const bool own_role = std::find(kRoles.begin(), kRoles.end(), rule.role) == kRoles.end();
    if (const std::string near = nearest(rule.role, kRoles); own_role && !near.empty())
      fail("rules.{}: no layer places anything as '{}'; did you mean '{}'?", which, rule.role,
           near);
  }
}

void check(std::string_view which, const std::vector<AxisRule>& rules, const Mesh& mesh) {
  const ErrorPrefix where(fmt::format("rules.{}", which));
  for (const AxisRule& rule : rules)
    for (const std::string& mesh_axis : rule.mesh) mesh.position(mesh_axis);
}

}  // namespace

void check_rules(const AxisRules& rules, const Mesh& mesh) {
  check("weights", rules.weights, mesh);
  check("activations", rules.activations, mesh);
}

void check_rules(const AxisRules& rules, const Graph& traced) {
  std::set<std::string> known(kVocabulary.begin(), kVocabulary.end());
  add_axes(traced, &known);
  check("weights", rules.weights, known);
  check("activations", rules.activations, known);
}

}  // namespace tessera
