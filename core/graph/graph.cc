// SPDX-License-Identifier: Apache-2.0
#include "core/graph/graph.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUpdate:
      return "update";
  }
  return "";
}

ValueId Graph::add_input(std::string name, InputKind kind, Type type) {
  if (!input_positions_.emplace(name, inputs_.size()).second)
    fail("the graph has an input '{}' already", name);
  const ValueId id = static_cast<ValueId>(values_.size());
  values_.push_back({std::move(type), kNone, 0, name});
  inputs_.push_back({std::move(name), kind, id});
  return id;
}

NodeId Graph::add_node(Node node, const std::vector<Type>& types) {
  const NodeId id = static_cast<NodeId>(nodes_.size());
  for (const ValueId input : node.inputs) {
    CHECK(input >= 0 && input < static_cast<ValueId>(values_.size()), "no value {}", input);
  }
  node.outputs.clear();
  for (const Type& type : types) {
    node.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back({type, id, static_cast<int32_t>(node.outputs.size()) - 1, ""});
  }
  nodes_.push_back(std::move(node));
  return id;
}

void Graph::add_output(std::string name, ValueId value) {
  if (!output_positions_.emplace(name, outputs_.size()).second)
    fail("the graph has an output '{}' already", name);
  outputs_.push_back({std::move(name), value, false});
}

void Graph::add_update(std::string input_name, ValueId value) {
  if (!output_positions_.emplace(input_name, outputs_.size()).second)
    fail("'{}' is updated twice", input_name);
  outputs_.push_back({std::move(input_name), value, true});
}

void Graph::order_inputs(const std::vector<ValueId>& values) {
  CHECK(values.size() == inputs_.size(), "{} values for {} inputs", values.size(), inputs_.size());
  std::unordered_map<ValueId, GraphInput> by_value;
  for (GraphInput& input : inputs_) by_value.emplace(input.value, std::move(input));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto found = by_value.find(values[i]);
    CHECK(found != by_value.end(), "value {} is not an input", values[i]);
    inputs_[i] = found->second;
    input_positions_[inputs_[i].name] = i;
  }
}

const GraphInput* Graph::find_input(std::string_view name) const {
  const auto found = input_positions_.find(std::string(name));
  return found == input_positions_.end() ? nullptr : &inputs_[found->second];
}

const GraphOutput* Graph::find_output(std::string_view name) const {
  const auto found = output_positions_.find(std::string(name));
  return found == output_positions_.end() ? nullptr : &outputs_[found->second];
}

std::string Graph::describe(ValueId id) const {
  const Value& described = value(id);
  if (!described.name.empty()) return described.name;
  if (described.producer == kNone) {
    for (const GraphInput& input : inputs_)
      if (input.value == id) return input.name;
  }
  const Node& producer = node(described.producer);
  if (producer.path.empty()) return std::string(producer.op->name);
  return fmt::format("{} of {}", producer.op->name, producer.path);
}

std::vector<std::vector<NodeId>> consumers(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.values().size());
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    for (const ValueId input : graph.node(id).inputs) {
      readers[static_cast<size_t>(input)].push_back(id);
    }
  }
  return readers;
}

}  // namespace tessera
