// SPDX-License-Identifier: Apache-2.0
#include "core/graph/graph.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "core/base/number_text.h"

namespace tessera {
namespace {

struct AttributePrinter {
  std::string& text;
  void operator()(int64_t value) const { append_number(value, text); }
  void operator()(double value) const { fmt::format_to(std::back_inserter(text), "{}", value); }
  void operator()(const std::string& value) const { text += value; }
  template <typename T>
  void operator()(const std::vector<T>& value) const {
    fmt::format_to(std::back_inserter(text), "[{}]", fmt::join(value, " "));
  }
  void operator()(DType value) const { text += dtype_name(value); }
  void operator()(const Type& value) const { value.append_sized(text); }
};

}  // namespace

const Attribute* Attributes::find(std::string_view name) const {
  for (const Entry& entry : entries_)
    if (entry.name == name) return &entry.value;
  return nullptr;
}

void Attributes::set(Entry entry) {
  const auto present = std::ranges::find(entries_, entry.name, &Entry::name);
  if (present != entries_.end()) {
    *present = std::move(entry);
  } else {
    entries_.push_back(std::move(entry));
  }
}

std::string Attributes::text() const {
  std::string text;
  append_to(text);
  return text;
}

void Attributes::append_to(std::string& text) const {
  std::string_view separator;
  for (const Entry& entry : entries_) {
    ((text += separator) += entry.name) += '=';
    std::visit(AttributePrinter{text}, entry.value);
    separator = " ";
  }
}

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, 3> kNames = {"forward", "backward", "update"};
  return kNames[static_cast<size_t>(phase)];
}

ValueId Graph::add_input(std::string name, InputKind kind, SharedType type) {
  const bool was_copied = copied_input_positions_ && copied_input_positions_->contains(name);
  if (was_copied || !input_positions_.emplace(name, inputs_.size()).second)
    fail("the graph already has an input '{}'", name);
  const ValueId id = values_.push_back({std::move(type), kNone, 0, name});
  inputs_.push_back({std::move(name), kind, id});
  return id;
}

void Graph::copy_inputs(const Graph& from) {
  CHECK(inputs_.empty(), "a graph with inputs copies those of another");
  inputs_ = from.inputs_;
  copied_input_positions_ = from.copied_input_positions_;
  if (!from.input_positions_.empty()) {
    Positions all = from.input_positions_;
    if (copied_input_positions_)
      all.insert(copied_input_positions_->begin(), copied_input_positions_->end());
    copied_input_positions_ = std::make_shared<const Positions>(std::move(all));
  }
  for (GraphInput& input : inputs_) {
    const Value& old = from.value(input.value);
    input.value = values_.push_back({old.type, kNone, 0, old.name});
  }
}

NodeId Graph::add_node(Node node, const std::vector<SharedType>& types) {
  for (const ValueId input : node.inputs) CHECK(values_.has(input), "no value {}", input);
  node.outputs.clear();
  const NodeId id = nodes_.push_back(std::move(node));
  for (const SharedType& type : types) add_result(id, type);
  return id;
}

ValueId Graph::add_result(NodeId node, SharedType type) {
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
  copied_input_positions_.reset();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto found = by_value.find(values[i]);
    CHECK(found != by_value.end(), "value {} is not an input", values[i]);
    inputs_[i] = found->second;
    input_positions_[inputs_[i].name] = i;
  }
}

const GraphInput* Graph::find_input(std::string_view name) const {
  const std::string key(name);
  for (const Positions* positions : {copied_input_positions_.get(), &input_positions_}) {
    if (positions == nullptr) continue;
    if (const auto found = positions->find(key); found != positions->end())
      return &inputs_[found->second];
  }
  return nullptr;
}

const GraphOutput* Graph::find_output(std::string_view name) const {
  const auto found = output_positions_.find(std::string(name));
  return found == output_positions_.end() ? nullptr : &outputs_[found->second];
}

Consumers::Consumers(const Graph& graph) : begins_(graph.values().size() + 1, 0) {
  for (const Node& node : graph.nodes())
    for (const ValueId input : node.inputs) ++begins_[input.index() + 1];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  nodes_.resize(begins_.back());
  std::vector<size_t> next(begins_.begin(), begins_.end() - 1);
  for (const NodeId id : graph.nodes().ids())
    for (const ValueId input : graph.node(id).inputs) nodes_[next[input.index()]++] = id;
}

Graph& Tensor::no_graph() {
  fail(
      "a Tensor without a value is used; expected the result of an op, of a layer or of "
      "Features::get (Features::find gives none for what the batch lacks: ask its valid() first)");
}

}  // namespace tessera
