// SPDX-License-Identifier: Apache-2.0
#include "core/passes/rewrite.h"

#include <utility>

#include "core/base/error.h"
#include "core/graph/op.h"

namespace tessera {

Rewriter::Rewriter(const Graph& from) : from_(from), map_(from.values().size()) {}

bool Rewriter::has(ValueId old_value) const { return map_[old_value] != kNone; }

ValueId Rewriter::at(ValueId old_value) const {
  CHECK(has(old_value), "{} is read before it is computed", from_.describe(old_value));
  return map_[old_value];
}

void Rewriter::set(ValueId old_value, ValueId new_value) { map_[old_value] = new_value; }

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

bool is_repeat(const Node& node) { return node.op->op_class == OpClass::kLoop; }

Loop::Loop(const Node& node)
    : node_(&node),
      count_(node.attributes.get<int64_t>("count")),
      carries_(static_cast<size_t>(node.attributes.get<int64_t>("carries"))),
      slices_(static_cast<size_t>(node.attributes.get<int64_t>("stacked"))),
      constants_(static_cast<size_t>(node.attributes.get<int64_t>("constants"))),
      reversed_(node.attributes.get_or<int64_t>("reversed", 0) != 0),
      axis_(node.attributes.get<std::string>("axis")) {
  CHECK(is_repeat(node));
}

size_t Loop::results() const { return node_->outputs.size() - carries_; }

Type stacked_type(const Type& slice, const std::string& axis, int64_t count) {
  Type type = slice;
  type.axes.insert(type.axes.begin(), Axis{.name = axis, .size = count, .split = {}});
  return type;
}

Type slice_type(const Type& stacked) {
  Type type = stacked;
  type.axes.erase(type.axes.begin());
  return type;
}

Attributes loop_attributes(const std::string& axis, int64_t count, size_t carries, size_t slices,
                           size_t constants, bool reversed) {
  return {{"axis", axis},
          {"count", count},
          {"carries", static_cast<int64_t>(carries)},
          {"stacked", static_cast<int64_t>(slices)},
          {"constants", static_cast<int64_t>(constants)},
          {"reversed", static_cast<int64_t>(reversed)}};
}

}  // namespace tessera
