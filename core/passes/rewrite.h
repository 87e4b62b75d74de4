// SPDX-License-Identifier: Apache-2.0
// What passes are made of: copying a graph node by node with changes, and access to the parts of a
// loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// Builds the graph `to()` from `from` and maps old values to new ones.
class Rewriter {
 public:
  explicit Rewriter(const Graph& from);

  Graph& to() { return to_; }
  const Graph& to() const { return to_; }
  bool has(ValueId old_value) const;
  ValueId at(ValueId old_value) const;  // CHECKs that there is one.
  void set(ValueId old_value, ValueId new_value);

  // Copies all graph inputs with their names and kinds.
  void copy_inputs();
  // Copies node `id` with its operands mapped. Values keep their names.
  NodeId copy_node(NodeId id);
  // Adds `node`, whose operands are values of `to`, in place of node `id`.
  NodeId copy_node_as(NodeId id, Node node, const std::vector<Type>& types);
  // Copies all graph outputs.
  void copy_outputs();

 private:
  const Graph& from_;
  Graph to_;
  IndexedVector<ValueId, ValueId> map_;
};

// The types of a node's outputs.
std::vector<Type> output_types(const Graph& graph, const Node& node);

bool is_repeat(const Node& node);

// The operands and results of a `repeat` node by their role (the layout of the node is in
// core/ops/repeat.h). Positions count within a role: carry 0, slice 0, constant 0.
class Loop {
 public:
  explicit Loop(const Node& node);  // `node` must outlive it.

  const Graph& body() const { return *node_->bodies[0]; }
  int64_t count() const { return count_; }
  const std::string& axis() const { return axis_; }
  bool reversed() const { return reversed_; }
  size_t carries() const { return carries_; }
  size_t slices() const { return slices_; }
  size_t constants() const { return constants_; }
  size_t results() const;  // Stacked outputs.

  // Values of the outer graph.
  ValueId initial(size_t carry) const { return operand(carry); }
  ValueId stacked(size_t slice) const { return operand(carries_ + slice); }
  ValueId constant(size_t k) const { return operand(carries_ + slices_ + k); }
  ValueId last(size_t carry) const { return node_->outputs[carry]; }
  ValueId result(size_t k) const { return node_->outputs[carries_ + k]; }

  // Values of the body.
  ValueId index() const { return body_input(0); }
  ValueId carry_in(size_t carry) const { return body_input(1 + carry); }
  ValueId slice_in(size_t slice) const { return body_input(1 + carries_ + slice); }
  ValueId constant_in(size_t k) const { return body_input(1 + carries_ + slices_ + k); }
  ValueId carry_out(size_t carry) const { return body_output(carry); }
  ValueId slice_out(size_t k) const { return body_output(carries_ + k); }

  // The index of the iteration that runs as number `step` (0, 1, …).
  int64_t iteration(int64_t step) const { return reversed_ ? count_ - 1 - step : step; }

 private:
  ValueId operand(size_t i) const { return node_->inputs[i]; }
  ValueId body_input(size_t i) const { return body().inputs()[i].value; }
  ValueId body_output(size_t i) const { return body().outputs()[i].value; }

  const Node* node_;
  int64_t count_;
  size_t carries_, slices_, constants_;
  bool reversed_;
  std::string axis_;
};

// The type of a stack of `count` slices of a type, and the type of one slice of a stack.
Type stacked_type(const Type& slice, const std::string& axis, int64_t count);
Type slice_type(const Type& stacked);

// The attributes of a repeat node.
Attributes loop_attributes(const std::string& axis, int64_t count, size_t carries, size_t slices,
                           size_t constants, bool reversed);

}  // namespace tessera
