// SPDX-License-Identifier: Apache-2.0
#include "core/graph/graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {
namespace {

std::string value_text(const Attribute& attribute) {
  struct Printer {
    std::string operator()(int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return fmt::format("{}", value); }
    std::string operator()(const std::string& value) const { return value; }
    std::string operator()(const std::vector<int64_t>& value) const {
      return fmt::format("[{}]", fmt::join(value, " "));
    }
    std::string operator()(const std::vector<std::string>& value) const {
      return fmt::format("[{}]", fmt::join(value, " "));
    }
    std::string operator()(const Type& value) const { return value.text_sized(); }
  };
  return std::visit(Printer{}, attribute);
}

}  // namespace

const Attribute* Attributes::find(std::string_view name) const {
  for (const auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Attributes::set(std::string_view name, Attribute value) {
  const auto present = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const auto& entry) { return entry.first == name; });
  if (present != entries_.end()) {
    present->second = std::move(value);
  } else {
    entries_.emplace_back(std::string(name), std::move(value));
  }
}

std::string Attributes::text() const {
  std::string text;
  for (const auto& [key, value] : entries_) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{}={}", key, value_text(value));
  }
  return text;
}

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, 3> kNames = {"forward", "backward", "update"};
  return kNames[static_cast<size_t>(phase)];
}

ValueId Graph::add_input(std::string name, InputKind kind, Type type) {
  if (!input_positions_.emplace(name, inputs_.size()).second)
    fail("the graph already has an input '{}'", name);
  const ValueId id = values_.push_back({std::move(type), kNone, 0, name});
  inputs_.push_back({std::move(name), kind, id});
  return id;
}

NodeId Graph::add_node(Node node, const std::vector<Type>& types) {
  for (const ValueId input : node.inputs) CHECK(values_.has(input), "no value {}", input);
  node.outputs.clear();
  const NodeId id = nodes_.push_back(std::move(node));
  for (const Type& type : types) add_result(id, type);
  return id;
}

ValueId Graph::add_result(NodeId node, Type type) {
  std::vector<ValueId>& outputs = nodes_[node].outputs;
  outputs.push_back(values_.push_back({std::move(type), node, outputs.size(), ""}));
  return outputs.back();
}

void Graph::add_output(std::string name, ValueId value) {
  if (!output_positions_.emplace(name, outputs_.size()).second)
    fail("the graph already has an output '{}'", name);
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

IndexedVector<ValueId, std::vector<NodeId>> consumers(const Graph& graph) {
  IndexedVector<ValueId, std::vector<NodeId>> readers(graph.values().size());
  for (const NodeId id : graph.nodes().ids())
    for (const ValueId input : graph.node(id).inputs) readers[input].push_back(id);
  return readers;
}

}  // namespace tessera
