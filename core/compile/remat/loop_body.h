// SPDX-License-Identifier: Apache-2.0
// Decides which values pass from the forward to the backward pass: which are worth recomputing, and
// the split of a loop into a forward and a backward loop.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/compile/rewrite.h"
#include "core/graph/graph.h"
#include "core/ops/repeat.h"

namespace tessera {

// The two passes in a graph that contains both.
struct PassesOfGraph {
  std::function<bool(NodeId)> is_forward, is_backward;
  std::function<bool(ValueId)> persists;  // Whether the backward pass can read a graph input.
};

// Returns forward values that the backward pass should recompute instead of reading them, whatever
// the remat policy: elementwise results whose operands it has anyway and that only elementwise
// nodes read. A fused loop recomputes them with the same bits, and they need not be stored. Values
// marked by save_for_backward and outputs are not among them.
ValueFlags recompute_candidates(const Graph& graph, const PassesOfGraph& passes);

// Splits a joint graph, the forward nodes of a loop body followed by nodes of its backward pass,
// into two bodies. Forward values that the backward pass reads are saved by the forward loop, read
// again from its operands, or recomputed.
class LoopBody {
 public:
  // Nodes before `forward_end` are those of the body of the loop `forward`; inputs, outputs and
  // values of that body have the same ids in `joint`.
  LoopBody(const Graph& joint, const Loop& forward, NodeId forward_end);

  // Adds operands and results of the backward loop, as values of the joint graph. Slices added here
  // precede saved values.
  void add_carry(ValueId in, ValueId out);
  void add_slice(ValueId in);
  void add_result(ValueId out);

  // Decides whether a forward value that the backward pass reads is saved or recomputed. By default
  // all are saved except views, recompute_candidates(), and inexpensive values that are the same in
  // every iteration.
  void save_if(std::function<bool(ValueId)> save) { save_ = std::move(save); }

  struct Built {
    std::shared_ptr<const Graph> forward_body;   // With `saved` as further results.
    std::shared_ptr<const Graph> backward_body;  // Slices: the added ones, `saved`, `slices`.
    std::vector<ValueId> saved;                  // Values of the joint graph.
    std::vector<size_t> slices;     // Stacked operands of the forward loop that are read again.
    std::vector<size_t> constants;  // Constants of the forward loop that are read again.
  };
  Built build();

  // Gives the forward loop, node `id` of `outer`, its new body, with the saved values as further
  // results. Returns the stacked operands that the backward loop reads after the added ones.
  std::vector<ValueId> extend_forward(Graph& outer, NodeId id, const Built& built) const;

 private:
  enum class Source { kUnknown, kBackward, kIndex, kSlice, kConstant, kSaved, kRecomputed };

  Source classify(ValueId value);
  void require(ValueId value);
  bool saves(ValueId value) const;
  bool is_inexpensive_invariant(ValueId value) const;
  void find_candidates();
  void find_live();
  void find_crossing();
  Graph build_forward() const;
  Graph build_backward();
  void copy_with_operands(Rewriter& rewriter, NodeId id);

  const Graph& joint_;
  const Loop& forward_;
  NodeId forward_end_;
  std::function<bool(ValueId)> save_;  // Unset: the default.
  std::vector<ValueId> carries_in_, carries_out_, slices_in_, results_;
  IndexedVector<ValueId, Source> sources_;
  NodeFlags live_;
  ValueFlags candidates_;
  ValueFlags invariant_;  // Values that are equal in every iteration.
  std::vector<ValueId> saved_;
  std::vector<size_t> slices_, constants_;
};

}  // namespace tessera
