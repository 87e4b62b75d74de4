// SPDX-License-Identifier: Apache-2.0
// Finds on which stages of a pipeline the values outside the loop over microbatches are computed:
// an embedding and its update on the stages that use it, most others on all.
#pragma once

#include <cstdint>

#include "core/compile/stages/added_nodes.h"
#include "core/compile/stages/homes.h"
#include "core/compile/stages/task_bodies.h"
#include "core/graph/graph.h"

namespace tessera {

class Availability {
 public:
  // `loop` is the loop over microbatches in `graph`.
  Availability(const Graph& graph, NodeId loop, const TaskBodies& tasks, int64_t stages);

  // Returns the stages that compute or hold the value.
  const StageList& of(ValueId value) const { return available_[value]; }
  bool at(ValueId value, int64_t stage) const;
  bool is_everywhere(const StageList& stages) const {
    return static_cast<int64_t>(stages.size()) == stages_;
  }
  // Returns the stages that hold the operands of a node whose results all stages need; empty for
  // other nodes. A squared norm may have operands of different stages.
  const StageList& broadcast_from(NodeId node) const { return broadcast_from_[node]; }

  // Returns the parameters and states that not all stages hold.
  StageHomes homes() const;

 private:
  void place_weights(NodeId loop, const TaskBodies& tasks);
  void place_sums(NodeId loop, const TaskBodies& tasks);
  void place_nodes(NodeId loop);
  bool place_states();

  const Graph& graph_;
  int64_t stages_;
  StageList all_;
  IndexedVector<ValueId, StageList> available_;
  IndexedVector<NodeId, StageList> broadcast_from_;
};

}  // namespace tessera
