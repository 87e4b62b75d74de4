// SPDX-License-Identifier: Apache-2.0
// Finds which task of a pipeline computes each value of a microbatch. The layers that are stacked
// over `stage` are cut into pieces; values that they are computed from belong to the first piece,
// values after them, and what only those are computed from, to the last one.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/graph/graph.h"
#include "core/ops/repeat.h"
#include "core/schedules/table.h"

namespace tessera {

// Return whether a node of a localised graph gathers a stack of layers that is split over `stage`,
// or keeps this stage's part of one.
bool is_stage_gather(const Node& node);
bool is_stage_slice(const Node& node);

// The work of a piece. The work of kBackward is that of kBackwardInput and kBackwardWeight.
struct PieceTask {
  PipelineWork work = PipelineWork::kForward;
  int64_t piece = 0;
  auto operator<=>(const PieceTask&) const = default;
};

// A loop over the stacked layers.
struct LayerLoop {
  NodeId node;
  PipelineWork work = PipelineWork::kForward;
};

class TaskPlacement {
 public:
  // `microbatches` is the localised loop over microbatches. Error if the model has more than one
  // stack of layers.
  TaskPlacement(const Loop& microbatches, int64_t pieces);

  const std::vector<LayerLoop>& loops() const { return loops_; }
  // Returns the loop of this node; null: another node.
  const LayerLoop* loop(NodeId node) const;
  int64_t layers() const { return layers_; }  // Layers of the stack.

  // Returns the task of a node that is not a loop over the layers. nullopt: each task that needs it
  // computes it, such as masks, positions and weights that are cast or gathered.
  std::optional<PieceTask> task(NodeId node) const { return tasks_[node]; }
  // Returns whether the value is the gradient of stacked weights: each piece computes its own
  // layers of it.
  bool is_stacked_gradient(ValueId value) const { return stacked_[value]; }
  // Returns the task that makes a carry or a result of a loop, for one piece.
  PieceTask task_of_loop(const LayerLoop& loop, int64_t piece) const { return {loop.work, piece}; }
  // Returns the piece that comes before `piece` in the loop; nullopt for the first one.
  std::optional<int64_t> previous_piece(const LayerLoop& loop, int64_t piece) const;
  int64_t last_piece(const LayerLoop& loop) const;
  int64_t pieces() const { return pieces_; }
  // Returns kBackwardWeight if the backward loop was split in two (split_backward.cc), else
  // kBackward.
  PipelineWork weight_work() const;

 private:
  // Values that depend on the results of the loops, on weights and on the microbatch; and values
  // that the loops and the nodes after the forward loop are computed from.
  struct Dependences {
    ValueFlags on_forward, on_backward, on_weights, on_batch;
    ValueFlags of_forward, of_backward, of_last = {};
  };
  Dependences dependences() const;
  void find_loops();
  void find_stacked_gradients();
  void place_nodes();

  const Loop& microbatches_;
  const Graph& body_;
  int64_t pieces_;
  int64_t layers_ = 0;
  std::vector<LayerLoop> loops_;
  IndexedVector<NodeId, std::optional<PieceTask>> tasks_;
  ValueFlags stacked_;
};

// The attribute of the second loop that split_backward() makes.
inline constexpr AttributeName<bool> kBackwardWeightLoop{"backward_weight"};

// Splits each backward loop over layers that are stacked over `stage`, in the loop over
// microbatches of a localised graph, into two: the first computes its carries (the gradient for the
// previous layer), the second its stacked results (the gradients of weights). The first stacks the
// values that both need.
Graph split_backward(const Graph& localized);

}  // namespace tessera
