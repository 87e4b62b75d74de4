// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/session/check_rules.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/layer_pieces.h"

namespace tessera {
namespace {

// Logical axes that rules may name even if the model has none of them, so that one set of rules
// serves many models.
const std::vector<std::string> kVocabulary = {"batch", "seq",      "key_seq",  "embed",
                                              "heads", "kv_heads", "head_dim", "mlp",
                                              "vocab", "layers",   "experts"};
const std::vector<std::string> kRoles = {"residual", "attention"};

// Calls visit(type) for each value of the graph and of its loop bodies.
template <typename Visit>
void each_type(const Graph& graph, const Visit& visit) {
  for (const Value& value : graph.values()) visit(*value.type);
  for (const Node& node : graph.nodes())
    for (const auto& body : node.bodies) each_type(*body, visit);
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
      fail("rules.{}: no layer uses the role '{}'; did you mean '{}'?", which, rule.role, near);
  }
}

void check(std::string_view which, const std::vector<AxisRule>& rules, const Mesh& mesh) {
  const ErrorPrefix where(fmt::format("rules.{}", which));
  for (const AxisRule& rule : rules)
    for (const std::string& mesh_axis : rule.mesh) mesh.position(mesh_axis);
}

// Devices of different stages do different work, so no activation can be split over them. `own`:
// the logical axis that may be, or "".
void check_stage_rules(std::string_view which, const std::vector<AxisRule>& rules,
                       std::string_view own) {
  for (const AxisRule& rule : rules)
    if (std::ranges::find(rule.mesh, kStageAxis) != rule.mesh.end() &&
        (rule.axis != own || rule.mesh.size() > 1))
      fail(
          "rules.{}: \"{}\" names the mesh axis stage, which is for the stages of a pipeline; only "
          "rules.weights may name it, as layers -> stage; split {} over another mesh axis",
          which, rules_text({rule}), rule.axis);
}

// Error for a value of the graph with an axis other than `layers` split over `stage`.
void check_stage_types(const Graph& graph) {
  for (const Value& value : graph.values())
    for (const Axis& axis : value.type->axes)
      if (axis.split_over(kStageAxis) && axis.name != kLayersAxis)
        fail(
            "{} is split over stage, the stages of a pipeline, but only layers of weights can be: "
            "its layer has a rule or a layout of its own",
            value.type->text());
  for (const Node& node : graph.nodes())
    for (const auto& body : node.bodies) check_stage_types(*body);
}

// The rules that name a mesh axis.
std::vector<AxisRule> naming(const std::vector<AxisRule>& rules, const std::string& mesh_axis) {
  std::vector<AxisRule> found;
  std::ranges::copy_if(rules, std::back_inserter(found), [&](const AxisRule& rule) {
    return std::ranges::find(rule.mesh, mesh_axis) != rule.mesh.end();
  });
  return found;
}

std::string in_quotes(const std::vector<AxisRule>& rules) {
  return fmt::format("\"{}\"", rules_text(rules));
}

// Why nothing is sharded over the mesh axis.
std::string cause(const AxisRules& rules, const std::string& mesh_axis) {
  std::string text;
  for (const auto& [which, all] :
       {std::pair("weights", &rules.weights), std::pair("activations", &rules.activations)})
    if (const std::vector<AxisRule> found = naming(*all, mesh_axis); !found.empty())
      text +=
          fmt::format("{}rules.{} has {}", text.empty() ? "" : " and ", which, in_quotes(found));
  if (text.empty()) return "no rule names it";
  return text + ", which applies to no tensor of this model";
}

}  // namespace

std::vector<std::string> idle_mesh_axes(const AxisRules& rules, const Mesh& mesh,
                                        const Graph& traced) {
  std::set<std::string> used;  // Mesh axes over which a value is sharded or partial.
  each_type(traced, [&](const Type& type) {
    for (const MeshAxis& axis : mesh.axes())
      if (split_over(type, axis.name) || type.partial.over(axis.name)) used.insert(axis.name);
  });
  std::vector<std::string> warnings;
  for (const MeshAxis& axis : mesh.axes())
    if (axis.size() > 1 && used.count(axis.name) == 0)
      warnings.push_back(fmt::format(
          "mesh axis {0}={1} splits nothing ({2}): the {1} devices along it repeat the same work; "
          "name {0} in rules.weights (now {3}) or rules.activations (now {4}), or set its size to "
          "1",
          axis.name, axis.size(), cause(rules, axis.name), in_quotes(rules.weights),
          in_quotes(rules.activations)));
  return warnings;
}

void check_rules(const AxisRules& rules, const Mesh& mesh) {
  check("weights", rules.weights, mesh);
  check("activations", rules.activations, mesh);
  check_stage_rules("weights", rules.weights, kLayersAxis);
  check_stage_rules("activations", rules.activations, "");
}

void check_rules(const AxisRules& rules, const Graph& traced) {
  std::set<std::string> known(kVocabulary.begin(), kVocabulary.end());
  each_type(traced, [&](const Type& type) {
    for (const Axis& axis : type.axes) known.insert(axis.name);
  });
  check("weights", rules.weights, known);
  check("activations", rules.activations, known);
  if (!naming(rules.weights, std::string(kStageAxis)).empty()) check_stage_types(traced);
}

}  // namespace tessera
