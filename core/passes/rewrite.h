// SPDX-License-Identifier: Apache-2.0
// Copying a graph node by node, with changes on the way: what every pass is made of.
#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// Builds `to()` from `from`, remembering what each value became.
class Rewriter {
 public:
  explicit Rewriter(const Graph& from);

  Graph& to() { return to_; }
  const Graph& to() const { return to_; }
  bool has(ValueId old_value) const;
  ValueId at(ValueId old_value) const;  // CHECKs that it has become something.
  void set(ValueId old_value, ValueId new_value);

  // All graph inputs, names and kinds kept.
  void copy_inputs();
  // Node `id` of `from` with its operands as they are now; names of values are kept.
  NodeId copy_node(NodeId id);
  // A changed copy: `node` (operands already in `to`) stands for node `id` of `from`.
  NodeId copy_node_as(NodeId id, Node node, const std::vector<Type>& types);
  // All graph outputs.
  void copy_outputs();

 private:
  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
};

// The types of a node's outputs.
std::vector<Type> output_types(const Graph& graph, const Node& node);

// Whether a graph output depends on each node.
std::vector<bool> live_nodes(const Graph& graph);

}  // namespace tessera
