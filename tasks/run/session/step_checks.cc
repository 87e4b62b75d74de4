// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/session/step_checks.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/layer_pieces.h"
#include "core/graph/op.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/repeat.h"
#include "tasks/task/base_task.h"

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

constexpr int32_t kIgnoredLabel = -100;  // ignore_index of PyTorch's losses.

// The array of the batch whose elements a value holds; "": none.
using ArrayNames = IndexedVector<ValueId, std::string>;

// Whether the results hold elements of the operand, and at most zeros besides.
bool keeps_elements(const OpDef& op) {
  return op.op_class == OpClass::kView || op.op_class == OpClass::kDataMovement ||
         op.op_class == OpClass::kReshard || op.identity || op.conversion;
}

// The operand that holds ids, and the size of the axis that they index.
std::pair<ValueId, int64_t> lookup_of(const Graph& graph, const Node& node) {
  if (node.op == &kOneHotOp) return {node.inputs[0], node.attributes.get(key::kSize)};
  for (const Op* op : {&kGatherOp, &kPickOp, &kCrossEntropyOp, &kCrossEntropyShardOp})
    if (node.op == op)
      return {node.inputs[1],
              graph.type(node.inputs[0]).axis(node.attributes.get(key::kAxis)).size};
  return {kNone, 0};
}

void find_lookups(const Graph& graph, ArrayNames names, LookupBounds* bounds) {
  for (const Node& node : graph.nodes()) {
    const auto [ids, size] = lookup_of(graph, node);
    if (ids != kNone && !names[ids].empty()) {
      LookupBound& bound = (*bounds)[names[ids]];
      if (bound.where.empty() || size < bound.size)
        bound = {size, fmt::format("'{}' in {} ({})", node.attributes.get(key::kAxis), node.path,
                                   node.site.text())};
    } else if (is_repeat(node)) {
      const Loop loop(node);
      ArrayNames inside(loop.body().values().size());
      for (size_t i = loop.carries(); i < loop.operands(); ++i)
        inside[loop.operand_in(i)] = names[loop.operand(i)];
      find_lookups(loop.body(), std::move(inside), bounds);
    } else if (node.inputs.size() == 1 && keeps_elements(*node.op)) {
      for (const ValueId output : node.outputs) names[output] = names[node.inputs[0]];
    }
  }
}

bool is_weightless(const Batch& batch, const HostArray& labels, size_t at) {
  const auto weights = batch.find("weights");
  return weights != batch.end() && weights->second.dtype == DType::kF32 &&
         weights->second.shape == labels.shape && weights->second.data<float>()[at] == 0.0f;
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

LookupBounds lookup_bounds(const Graph& traced) {
  ArrayNames names(traced.values().size());
  for (const GraphInput& input : traced.inputs())
    if (input.kind == InputKind::kBatch && traced.type(input.value).dtype == DType::kI32)
      names[input.value] = input.name.substr(names::kBatchPrefix.size());
  LookupBounds bounds;
  find_lookups(traced, std::move(names), &bounds);
  return bounds;
}

void check_batch(const Batch& batch, const LookupBounds& bounds, const std::string& where) {
  for (const auto& [name, bound] : bounds) {
    const auto found = batch.find(name);
    if (found == batch.end() || found->second.dtype != DType::kI32) continue;
    const HostArray& array = found->second;
    const std::span ids(array.data<int32_t>(), array.bytes.size() / sizeof(int32_t));
    const auto is_outside = [&](int32_t id) { return id < 0 || id >= bound.size; };
    for (auto bad = std::ranges::find_if(ids, is_outside); bad != ids.end();
         bad = std::find_if(bad + 1, ids.end(), is_outside)) {
      const auto at = static_cast<size_t>(bad - ids.begin());
      const bool is_label = name == "labels";
      if (is_label && is_weightless(batch, array, at)) continue;
      const bool is_ignored = is_label && *bad == kIgnoredLabel;
      const size_t row_size = ids.size() / static_cast<size_t>(array.shape[0]);
      fail("{}: '{}' is {} in row {}, position {}; expected 0 to {}, which {} has{}", where, name,
           *bad, at / row_size, at % row_size, bound.size - 1, bound.where,
           is_ignored ? ". To leave a label out of the loss, set its element of 'weights' to 0"
                      : "");
    }
  }
}

}  // namespace tessera
