// SPDX-License-Identifier: Apache-2.0
// Parting a loop's forward and backward work. A *joint* graph holds a body's forward nodes followed
// by nodes of its backward pass; LoopBody cuts it into two bodies and says what crosses over: saved
// by the forward loop, read again from its operands, or computed again.
#pragma once

#include <functional>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/loop.h"
#include "core/passes/rewrite.h"

namespace tessera {

class LoopBody {
 public:
  // Nodes before `forward_nodes` are the forward body's. `forward` is the loop they come from; its
  // body's inputs, outputs and values keep their ids in `joint`.
  LoopBody(const Graph& joint, const Loop& forward, NodeId forward_nodes);

  // Operands and results of the backward loop beyond what crosses over, as values of the joint
  // graph. Slices added here come before the saved ones.
  void add_carry(ValueId in, ValueId out);
  void add_slice(ValueId in);
  void add_result(ValueId out);

  // Whether a forward value that the backward pass reads is saved; else its node is computed again.
  // By default all are but views, what is cheap and the same in every iteration, and what is
  // cheaper to compute again than to read back (recompute_candidates.h).
  void save_if(std::function<bool(ValueId)> save) { save_ = std::move(save); }

  struct Built {
    Graph forward_body;              // Also returns `saved`, as further results.
    Graph backward_body;             // Slices: those added, `saved`, then `slices`.
    std::vector<ValueId> saved;      // Of the joint graph.
    std::vector<int64_t> slices;     // Stacked operands of the forward loop read again.
    std::vector<int64_t> constants;  // Likewise constants.
  };
  Built build();

 private:
  enum class Source { kUnknown, kBackward, kIndex, kSlice, kConstant, kSaved, kAgain };

  Source classify(ValueId value);
  void require(ValueId value);
  bool saves(ValueId value) const;
  bool is_cheap_invariant(ValueId value) const;
  void find_cheap();
  void find_live();
  void find_crossing();
  Graph build_forward() const;
  Graph build_backward();
  void copy_with_operands(Rewriter& rewriter, NodeId id);

  const Graph& joint_;
  const Loop& forward_;
  NodeId forward_nodes_;
  std::function<bool(ValueId)> save_;  // Unset: by default.
  std::vector<ValueId> carries_in_, carries_out_, slices_in_, results_;
  std::vector<Source> sources_;  // By value of the joint graph.
  std::vector<bool> live_;       // By node.
  std::vector<bool> cheap_;      // By value, as are
  std::vector<bool> invariant_;  // Values that no carry or slice reaches.
  std::vector<ValueId> saved_;
  std::vector<int64_t> slices_, constants_;
};

}  // namespace tessera
