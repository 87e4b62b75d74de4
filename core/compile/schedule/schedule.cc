// SPDX-License-Identifier: Apache-2.0
#include "core/compile/schedule/schedule.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/compile/rewrite.h"
#include "core/graph/op.h"
#include "core/ops/pipeline.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

using Names = std::vector<std::string>;

class Scheduler {
 public:
  Scheduler(const Graph& graph, const Names& transfers)
      : graph_(graph),
        readers_(graph),
        runs_early_(sums_of_collectives(graph)),
        placed_(graph.nodes().size()) {
    for (const NodeId id : graph.nodes().ids())
      if (graph.node(id).phase == Phase::kUpdate) runs_early_[id] = true;
    find_overwritten();
    find_lazy();
    find_ordered(transfers);
  }

  std::vector<NodeId> order() {
    for (const NodeId id : graph_.nodes().ids())
      if (!lazy_[id]) place(id);
    for (const NodeId id : graph_.nodes().ids()) place(id);
    return std::move(order_);
  }

 private:
  // Finds the states that each node replaces. Other readers of the old value run first, so that the
  // update can be done in place.
  void find_overwritten() {
    overwritten_ = IndexedVector<NodeId, std::vector<ValueId>>(graph_.nodes().size());
    updates_ = IndexedVector<ValueId, std::vector<NodeId>>(graph_.values().size());
    for (const GraphOutput& output : graph_.outputs()) {
      const GraphInput* state = output.is_update ? graph_.find_input(output.name) : nullptr;
      const NodeId producer = graph_.value(output.value).producer;
      if (state != nullptr && producer != kNone) {
        overwritten_[producer].push_back(state->value);
        updates_[state->value].push_back(producer);
      }
    }
  }

  // Inexpensive nodes whose operands are graph inputs run when something reads their result.
  void find_lazy() {
    ValueFlags persists(graph_.values().size());
    for (const GraphInput& input : graph_.inputs()) persists[input.value] = true;
    for (const Node& node : graph_.nodes()) {
      const OpClass kind = node.op->op_class;
      const bool cheap = kind == OpClass::kElementwise || kind == OpClass::kGenerator ||
                         kind == OpClass::kDataMovement || kind == OpClass::kView;
      const bool lazy =
          cheap && node.phase != Phase::kUpdate &&
          std::ranges::all_of(node.inputs, [&](ValueId value) { return persists[value]; });
      lazy_.push_back(lazy);
      if (lazy && kind == OpClass::kView)
        for (const ValueId value : node.outputs) persists[value] = true;
    }
  }

  // Nodes that communicate with devices of other programs keep their order (core/ops/send.h).
  void find_ordered(const Names& transfers) {
    before_ = after_ = IndexedVector<NodeId, NodeId>(graph_.nodes().size());
    NodeId last;
    for (const NodeId id : graph_.nodes().ids()) {
      if (!communicates_along(transfers, graph_.node(id))) continue;
      if (last != kNone) after_[last] = id;
      before_[id] = std::exchange(last, id);
    }
  }

  bool is_placed(NodeId id) const { return id == kNone || placed_[id]; }

  bool is_available(NodeId id) const { return is_placed(id) || lazy_[id]; }

  void place(NodeId id) {
    if (is_placed(id)) return;
    place(before_[id]);
    for (const ValueId value : graph_.node(id).inputs) place(graph_.value(value).producer);
    if (is_placed(id)) return;  // As an update that its last operand made ready.
    placed_[id] = true;
    order_.push_back(id);
    for (const ValueId value : graph_.node(id).outputs)
      for (const NodeId reader : readers_[value]) try_update(reader);
    for (const ValueId value : graph_.node(id).inputs)
      for (const NodeId update : updates_[value]) try_update(update);
    if (after_[id] != kNone) try_update(after_[id]);
  }

  // Places an update, or another node that runs early, once its operands are available and no other
  // node still reads what it replaces.
  void try_update(NodeId id) {
    if (is_placed(id) || !runs_early_[id]) return;
    if (!is_placed(before_[id])) return;
    for (const ValueId value : graph_.node(id).inputs)
      if (!is_available(graph_.value(value).producer)) return;
    for (const ValueId state : overwritten_[id])
      for (const NodeId reader : readers_[state])
        if (reader != id && !is_placed(reader)) return;
    place(id);
  }

  const Graph& graph_;
  Consumers readers_;
  IndexedVector<NodeId, std::vector<ValueId>> overwritten_;
  IndexedVector<ValueId, std::vector<NodeId>> updates_;  // The nodes that replace a state.
  IndexedVector<NodeId, NodeId> before_, after_;         // Neighbours of ordered nodes.
  NodeFlags runs_early_;
  NodeFlags lazy_;
  NodeFlags placed_;
  std::vector<NodeId> order_;
};

Graph scheduled(Graph lowered, const Names& transfers) {
  Rewriter rewriter(lowered);
  return rewriter.rewritten(Scheduler(lowered, transfers).order(), [&](NodeId id) {
    Node& node = lowered.node(id);
    for (auto& body : node.bodies)
      if (runs_bodies(node)) body = std::make_shared<const Graph>(scheduled(*body, transfers));
    rewriter.move_node(lowered, id);
  });
}

}  // namespace

Graph schedule(Graph lowered) {
  const Names transfers = transfer_axes(lowered);
  return scheduled(std::move(lowered), transfers);
}

}  // namespace tessera
