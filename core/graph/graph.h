// SPDX-License-Identifier: Apache-2.0
// The graph: values with types, nodes in topological order, named inputs and outputs. Plain data
// that passes read and rebuild. It is not traced here (trace.h) nor run here (core/runtime).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/source_site.h"
#include "core/graph/attributes.h"
#include "core/graph/type.h"

namespace tessera {

struct OpDef;
class Graph;

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

enum class Phase { kForward, kBackward, kUpdate };
std::string_view phase_name(Phase phase);  // "forward", …

// What a graph input is. Parameters and state persist between steps and may be updated in place;
// batch inputs and scalars are written by the host before each step.
enum class InputKind { kParameter, kState, kBatch, kScalar, kLoop };

struct Value {
  Type type;
  NodeId producer = kNone;  // kNone: a graph input.
  int32_t result = 0;       // Which output of the producer.
  std::string name;         // What the user calls it: "h", "ffn.up.w"; may be empty.
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attributes attributes;
  std::vector<std::shared_ptr<const Graph>> bodies;  // Of `repeat` and `fused`.
  SourceSite site;                                   // The line of layer code it serves.
  std::string path;                                  // The layer path: "lm.x_layers[3].ffn".
  Phase phase = Phase::kForward;
  int32_t remat_block = kNone;  // Which checkpointed region of the forward pass it belongs to.
  bool remat_clone = false;     // Recomputed in the backward pass: never merged with its original.
};

struct GraphInput {
  std::string name;  // "lm.softmax.w", "batch/ids", "step": unique in the graph.
  InputKind kind = InputKind::kBatch;
  ValueId value = kNone;
};

// An output may be the next value of a kParameter/kState input, which it then replaces in place
// after the step.
struct GraphOutput {
  std::string name;  // "loss", "grad_norm", or the name of the state it updates.
  ValueId value = kNone;
  bool is_update = false;
};

class Graph {
 public:
  ValueId add_input(std::string name, InputKind kind, Type type);
  // Appends a node, whose inputs must exist; returns its id. `types` are its output types.
  NodeId add_node(Node node, const std::vector<Type>& types);
  // One more output of a node that is there already (a loop that comes to save more).
  ValueId add_result(NodeId node, Type type) {
    const ValueId id = static_cast<ValueId>(values_.size());
    const auto result = static_cast<int32_t>(this->node(node).outputs.size());
    values_.push_back({.type = std::move(type), .producer = node, .result = result, .name = {}});
    this->node(node).outputs.push_back(id);
    return id;
  }
  void add_output(std::string name, ValueId value);
  void add_update(std::string input_name, ValueId value);
  // Puts the inputs in the order of these values, which are all of them.
  void order_inputs(const std::vector<ValueId>& values);

  const std::deque<Value>& values() const { return values_; }
  const std::deque<Node>& nodes() const { return nodes_; }
  const std::vector<GraphInput>& inputs() const { return inputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  Node& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const Type& type(ValueId id) const { return value(id).type; }
  const GraphInput* find_input(std::string_view name) const;  // nullptr if there is no such input.
  const GraphOutput* find_output(std::string_view name) const;

  // How a message calls a value: its name, else "<op> of <path>".
  std::string describe(ValueId id) const;

 private:
  // Deques: references to values and nodes stay good while more are traced.
  std::deque<Value> values_;
  std::deque<Node> nodes_;  // Topologically ordered: a node's inputs precede it.
  std::vector<GraphInput> inputs_;
  std::vector<GraphOutput> outputs_;
  std::unordered_map<std::string, size_t> input_positions_;  // By name.
  std::unordered_map<std::string, size_t> output_positions_;
};

// For each value, the nodes that read it (an entry per reading operand).
std::vector<std::vector<NodeId>> consumers(const Graph& graph);

}  // namespace tessera
