// SPDX-License-Identifier: Apache-2.0
#include "core/compile/rewrite.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/ops/pipeline.h"

namespace tessera {

Rewriter::Rewriter(const Graph& from) : from_(from), map_(from.values().size()) {}

bool Rewriter::has(ValueId old_value) const { return map_[old_value] != kNone; }

ValueId Rewriter::at(ValueId old_value) const {
  CHECK(has(old_value), "{} is read before it is computed", from_.describe(old_value));
  return map_[old_value];
}

void Rewriter::set(ValueId old_value, ValueId new_value) { map_[old_value] = new_value; }

void Rewriter::copy_inputs() {
  to_.copy_inputs(from_);
  for (size_t i = 0; i < from_.inputs().size(); ++i)
    set(from_.inputs()[i].value, to_.inputs()[i].value);
}

void Rewriter::copy_input(const GraphInput& input, SharedType type) {
  const ValueId value = to_.add_input(input.name, input.kind, std::move(type));
  to_.value(value).name = from_.value(input.value).name;
  set(input.value, value);
}

Node Rewriter::mapped(NodeId id) const {
  Node node = from_.node(id);
  for (ValueId& value : node.inputs) value = at(value);
  return node;
}

Node Rewriter::moved(Graph& from, NodeId id) const {
  CHECK(&from == &from_, "nodes of another graph");
  Node& old = from.node(id);
  Node node = std::move(old);
  old.outputs = std::move(node.outputs);  // NOLINT(bugprone-use-after-move): given back.
  node.outputs.clear();
  for (ValueId& value : node.inputs) value = at(value);
  return node;
}

NodeId Rewriter::add_moved(Graph& from, Node node, NodeId id) {
  CHECK(&from == &from_, "nodes of another graph");
  const NodeId made = to_.add_node(std::move(node), {});
  for (const ValueId value : from.node(id).outputs) {
    Value& old = from.value(value);
    const ValueId result = to_.add_result(made, old.type);
    to_.value(result).name = std::move(old.name);
    set(value, result);
  }
  return made;
}

NodeId Rewriter::add(Node node, const std::vector<ValueId>& old_values) {
  const NodeId made = to_.add_node(std::move(node), {});
  for (const ValueId value : old_values) {
    const ValueId result = to_.add_result(made, from_.value(value).type);
    to_.value(result).name = from_.value(value).name;
    set(value, result);
  }
  return made;
}

NodeId Rewriter::add(Node node, const std::vector<ValueId>& old_values,
                     const std::vector<SharedType>& types) {
  const NodeId made = to_.add_node(std::move(node), types);
  for (size_t i = 0; i < old_values.size(); ++i) {
    const ValueId value = to_.node(made).outputs[i];
    to_.value(value).name = from_.value(old_values[i]).name;
    set(old_values[i], value);
  }
  return made;
}

NodeId Rewriter::add_group(const OpDef& op, const std::vector<NodeId>& ids,
                           const std::vector<ValueId>& results) {
  Node node = from_.node(ids[0]);
  node.op = &op;
  node.attributes = {};
  node.inputs.clear();
  Graph body;
  std::unordered_map<ValueId, ValueId> inner;  // From values of the graph to values of the body.
  for (const NodeId id : ids) {
    Node each = from_.node(id);
    for (ValueId& value : each.inputs) {
      const auto [found, is_new] = inner.try_emplace(value);
      if (is_new) {
        // The type is here even if the node that makes the value has been moved.
        found->second = body.add_input(fmt::format("{}", node.inputs.size()), InputKind::kLoop,
                                       to_.value(at(value)).type);
        node.inputs.push_back(at(value));
      }
      value = found->second;
    }
    const std::vector<ValueId> outputs = std::exchange(each.outputs, {});
    const NodeId made = body.add_node(std::move(each), output_types(from_, from_.node(id)));
    for (size_t i = 0; i < outputs.size(); ++i) inner[outputs[i]] = body.node(made).outputs[i];
  }
  for (size_t i = 0; i < results.size(); ++i)
    body.add_output(fmt::format("{}", i), inner.at(results[i]));
  node.bodies = {std::make_shared<const Graph>(std::move(body))};
  return add(std::move(node), results);
}

void Rewriter::replace(const Node& node, const Graph& body) {
  IndexedVector<ValueId, ValueId> outer(body.values().size());
  for (size_t i = 0; i < node.inputs.size(); ++i)
    outer[body.inputs()[i].value] = at(node.inputs[i]);
  for (const Node& inner : body.nodes()) {
    Node made = inner;
    made.remat_clone = node.remat_clone;
    for (ValueId& value : made.inputs) value = outer[value];
    const NodeId id = to_.add_node(std::move(made), output_types(body, inner));
    for (size_t i = 0; i < inner.outputs.size(); ++i)
      outer[inner.outputs[i]] = to_.node(id).outputs[i];
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId value = outer[body.outputs()[i].value];
    to_.value(value).name = from_.value(node.outputs[i]).name;
    set(node.outputs[i], value);
  }
}

void Rewriter::copy_outputs() {
  for (const GraphOutput& output : from_.outputs()) {
    if (output.is_update) {
      to_.add_update(output.name, at(output.value));
    } else {
      to_.add_output(output.name, at(output.value));
    }
  }
}

GroupPass::GroupPass(Graph graph)
    : graph_(std::move(graph)),
      readers_(graph_),
      is_output_(graph_.values().size()),
      rewriter_(graph_) {
  for (const GraphOutput& output : graph_.outputs()) is_output_[output.value] = true;
}

void GroupPass::move_node(NodeId id, Graph (*pass)(Graph)) {
  Node node = rewriter_.moved(graph_, id);
  if (runs_bodies(node))
    for (auto& body : node.bodies) body = std::make_shared<const Graph>(pass(*body));
  rewriter_.add_moved(graph_, std::move(node), id);
}

bool is_in_order(const Graph& graph) {
  size_t next = 0;
  const auto is_next = [&](ValueId value) { return value.index() == next++; };
  for (const GraphInput& input : graph.inputs())
    if (!is_next(input.value)) return false;
  for (const Node& node : graph.nodes())
    if (!std::ranges::all_of(node.outputs, is_next)) return false;
  return next == graph.values().size();
}

std::vector<SharedType> output_types(const Graph& graph, const Node& node) {
  std::vector<SharedType> types;
  types.reserve(node.outputs.size());
  for (const ValueId value : node.outputs) types.push_back(graph.value(value).type);
  return types;
}

bool any_flagged(const std::vector<ValueId>& values, const ValueFlags& flags) {
  return std::ranges::any_of(values, [&](ValueId value) -> bool { return flags[value]; });
}

ValueFlags descendants(const Graph& graph, const std::vector<ValueId>& values) {
  ValueFlags found(graph.values().size());
  for (const ValueId value : values) found[value] = true;
  for (const Node& node : graph.nodes())
    if (any_flagged(node.inputs, found))
      for (const ValueId value : node.outputs) found[value] = true;
  return found;
}

ValueFlags ancestors(const Graph& graph, const std::vector<ValueId>& values) {
  ValueFlags found(graph.values().size());
  for (const ValueId value : values) found[value] = true;
  for (const NodeId id : graph.nodes().ids().reversed())
    if (any_flagged(graph.node(id).outputs, found))
      for (const ValueId value : graph.node(id).inputs) found[value] = true;
  return found;
}

}  // namespace tessera
