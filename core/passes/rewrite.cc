// SPDX-License-Identifier: Apache-2.0
#include "core/passes/rewrite.h"

#include <utility>

#include "core/base/error.h"

namespace tessera {

Rewriter::Rewriter(const Graph& from) : from_(from), map_(from.values().size(), kNone) {}

bool Rewriter::has(ValueId old_value) const {
  return map_[static_cast<size_t>(old_value)] != kNone;
}

ValueId Rewriter::at(ValueId old_value) const {
  CHECK(has(old_value), "{} is read before it is made", from_.describe(old_value));
  return map_[static_cast<size_t>(old_value)];
}

void Rewriter::set(ValueId old_value, ValueId new_value) {
  map_[static_cast<size_t>(old_value)] = new_value;
}

void Rewriter::copy_inputs() {
  for (const GraphInput& input : from_.inputs()) {
    const ValueId value = to_.add_input(input.name, input.kind, from_.type(input.value));
    to_.value(value).name = from_.value(input.value).name;
    set(input.value, value);
  }
}

NodeId Rewriter::copy_node(NodeId id) {
  Node node = from_.node(id);
  for (ValueId& value : node.inputs) value = at(value);
  return copy_node_as(id, std::move(node), output_types(from_, from_.node(id)));
}

NodeId Rewriter::copy_node_as(NodeId id, Node node, const std::vector<Type>& types) {
  node.outputs.clear();
  const NodeId copy = to_.add_node(std::move(node), types);
  const std::vector<ValueId>& old_outputs = from_.node(id).outputs;
  const std::vector<ValueId>& new_outputs = to_.node(copy).outputs;
  for (size_t i = 0; i < old_outputs.size(); ++i) {
    to_.value(new_outputs[i]).name = from_.value(old_outputs[i]).name;
    set(old_outputs[i], new_outputs[i]);
  }
  return copy;
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

std::vector<Type> output_types(const Graph& graph, const Node& node) {
  std::vector<Type> types;
  for (const ValueId value : node.outputs) types.push_back(graph.type(value));
  return types;
}

std::vector<bool> live_nodes(const Graph& graph) {
  std::vector<bool> wanted(graph.values().size(), false);
  for (const GraphOutput& output : graph.outputs())
    wanted[static_cast<size_t>(output.value)] = true;
  std::vector<bool> live(graph.nodes().size(), false);
  for (NodeId id = static_cast<NodeId>(graph.nodes().size()) - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    bool used = false;
    for (const ValueId value : node.outputs) used = used || wanted[static_cast<size_t>(value)];
    if (!used) continue;
    live[static_cast<size_t>(id)] = true;
    for (const ValueId value : node.inputs) wanted[static_cast<size_t>(value)] = true;
  }
  return live;
}

}  // namespace tessera
