// SPDX-License-Identifier: Apache-2.0
// Rewriting, the common part of passes: a graph is copied node by node with changes.
#pragma once

#include <utility>
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
  // Copies one, also as a value of another type.
  void copy_input(const GraphInput& input, SharedType type);
  void copy_input(const GraphInput& input) { copy_input(input, from_.value(input.value).type); }
  // A copy of node `id` with its operands mapped.
  Node mapped(NodeId id) const;
  // Adds `node`, whose operands are values of `to`. Its results replace `old_values`: they get
  // their names, and their types unless others are given.
  NodeId add(Node node, const std::vector<ValueId>& old_values);
  NodeId add(Node node, const std::vector<ValueId>& old_values,
             const std::vector<SharedType>& types);
  // Adds mapped(id) in place of node `id`.
  NodeId copy_node(NodeId id) { return add(mapped(id), from_.node(id).outputs); }
  // Does as mapped(), but moves the node out of `from`, the graph that this rewrites: only its op,
  // phase and outputs stay there.
  Node moved(Graph& from, NodeId id) const;
  // Does as copy_node(), but moves the node, and the types and names of its outputs.
  NodeId move_node(Graph& from, NodeId id) { return add_moved(from, moved(from, id), id); }
  // Does as move_node() with a node of other operands.
  NodeId add_moved(Graph& from, Node node, NodeId id);
  // Adds a node of this op in place of nodes `ids`, which become its body. It has the source line
  // and the layer path of the first. `results` are those values of the nodes that others read.
  NodeId add_group(const OpDef& op, const std::vector<NodeId>& ids,
                   const std::vector<ValueId>& results);
  // Copies the nodes of `body`, which computes the results of `node` from its operands, in place of
  // `node`.
  void replace(const Node& node, const Graph& body);
  // Copies all graph outputs.
  void copy_outputs();
  // Returns a graph with all inputs and outputs of `from`. `add` is called with each item, a node
  // or a group of nodes, to add what takes its place.
  template <typename Items, typename Add>
  Graph rewritten(const Items& items, const Add& add) {
    copy_inputs();
    for (const auto& item : items) add(item);
    copy_outputs();
    return std::move(to_);
  }

 private:
  const Graph& from_;
  Graph to_;
  IndexedVector<ValueId, ValueId> map_;
};

// The common part of passes that put one node in the place of several.
class GroupPass {
 public:
  explicit GroupPass(Graph graph);

 protected:
  // Moves a node, whose bodies become what `pass` makes of them if the device runs them.
  void move_node(NodeId id, Graph (*pass)(Graph));

  Graph graph_;
  Consumers readers_;
  ValueFlags is_output_;
  Rewriter rewriter_;
};

// Returns whether a copy of the graph, node by node, is equal to it: its values are numbered in the
// order of the inputs and of the nodes.
bool is_in_order(const Graph& graph);

// The types of a node's outputs.
std::vector<SharedType> output_types(const Graph& graph, const Node& node);

// Returns whether a flag of any of these values is set.
bool any_flagged(const std::vector<ValueId>& values, const ValueFlags& flags);

// Flag the values that depend on these, or that these are computed from, and these themselves.
ValueFlags descendants(const Graph& graph, const std::vector<ValueId>& values);
ValueFlags ancestors(const Graph& graph, const std::vector<ValueId>& values);

}  // namespace tessera
