// SPDX-License-Identifier: Apache-2.0
// Joins the bodies of a forward loop and of the backward loop that reads its results in one graph,
// and merges pairs of such loops into one loop.
#pragma once

#include <vector>

#include "core/graph/graph.h"
#include "core/ops/repeat.h"

namespace tessera {

// Returns the forward loop whose results the loop `backward` reads, or kNone.
NodeId find_forward_loop(const Graph& graph, const Node& backward);

// The forward body followed by the nodes of the backward body. A value that the forward loop saves
// for the backward loop is one value of this graph.
class JointLoop {
 public:
  JointLoop(const Graph& graph, NodeId forward, NodeId backward);
  JointLoop& operator=(JointLoop&&) = delete;  // Neither copied nor moved.

  // Copies of the loops, which stay valid when the outer graph changes.
  const Loop& forward() const { return forward_; }
  const Loop& backward() const { return backward_; }

  const Graph& body() const { return body_; }
  // Returns the first node of the backward body.
  NodeId forward_end() const { return forward_end_; }
  // Returns the value of the joined body for a value of the backward body.
  ValueId joined(ValueId value) const { return map_[value]; }

  // Slices of the backward loop that do not come from the forward loop: in the joined body, and the
  // outer operands.
  const std::vector<ValueId>& other_slices() const { return other_slices_; }
  const std::vector<ValueId>& other_stacks() const { return other_stacks_; }

 private:
  void map_inputs();
  ValueId add_input(ValueId value);
  ValueId forward_slice(ValueId outer) const;
  ValueId forward_constant(ValueId outer) const;
  void append(NodeId id);
  NodeId find_original(const Node& clone) const;

  Node forward_node_, backward_node_;
  Loop forward_, backward_;
  Graph body_;
  NodeId forward_end_;
  IndexedVector<ValueId, ValueId> map_;  // From the backward body to the joined one.
  std::vector<ValueId> other_slices_, other_stacks_;
};

// Runs a backward loop together with its forward loop, if an iteration of one needs only the same
// iteration of the other: the forward loop has no carries, the backward loop only sums, and the
// other operands of the backward loop do not depend on the forward loop. Each iteration then
// computes its gradients at once, so nothing is saved or recomputed.
//
// So the chunks of an output head (layers/embeddings/embedding_softmax.h) keep only the logits of
// one chunk. Their cotangents are the weights of the tokens, which are known beforehand.
Graph merge_loops(Graph graph);

}  // namespace tessera
