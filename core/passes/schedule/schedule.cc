// SPDX-License-Identifier: Apache-2.0
#include "core/passes/schedule/schedule.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/graph/op.h"
#include "core/passes/loop.h"
#include "core/passes/rewrite.h"

namespace tessera {
namespace {

class Scheduler {
 public:
  explicit Scheduler(const Graph& graph)
      : graph_(graph), readers_(consumers(graph)), placed_(graph.nodes().size(), false) {
    find_overwritten();
    find_lazy();
  }

  std::vector<NodeId> order() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id)
      if (!lazy_[static_cast<size_t>(id)]) place(id);
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) place(id);
    return std::move(order_);
  }

 private:
  // Per update node the states it replaces: all else that reads them goes first, for the update to
  // be done in place.
  void find_overwritten() {
    overwritten_.resize(graph_.nodes().size());
    updates_.resize(graph_.values().size());
    for (const GraphOutput& output : graph_.outputs()) {
      const GraphInput* state = output.is_update ? graph_.find_input(output.name) : nullptr;
      const NodeId producer = graph_.value(output.value).producer;
      if (state != nullptr && producer != kNone) {
        overwritten_[static_cast<size_t>(producer)].push_back(state->value);
        updates_[static_cast<size_t>(state->value)].push_back(producer);
      }
    }
  }

  // Nodes without operands but persistent ones wait until something reads their result.
  void find_lazy() {
    std::vector<bool> stays(graph_.values().size(), false);
    for (const GraphInput& input : graph_.inputs()) stays[static_cast<size_t>(input.value)] = true;
    for (const Node& node : graph_.nodes()) {
      const OpClass kind = node.op->op_class;
      const bool cheap = kind == OpClass::kElementwise || kind == OpClass::kGenerator ||
                         kind == OpClass::kDataMovement || kind == OpClass::kView;
      const bool lazy = cheap && node.phase != Phase::kUpdate &&
                        std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId value) {
                          return stays[static_cast<size_t>(value)];
                        });
      lazy_.push_back(lazy);
      if (lazy && kind == OpClass::kView)
        for (const ValueId value : node.outputs) stays[static_cast<size_t>(value)] = true;
    }
  }

  bool is_placed(NodeId id) const { return id == kNone || placed_[static_cast<size_t>(id)]; }

  bool is_at_hand(NodeId id) const { return is_placed(id) || lazy_[static_cast<size_t>(id)]; }

  void place(NodeId id) {
    if (is_placed(id)) return;
    for (const ValueId value : graph_.node(id).inputs) place(graph_.value(value).producer);
    if (is_placed(id)) return;  // As an update, by the last of its operands.
    placed_[static_cast<size_t>(id)] = true;
    order_.push_back(id);
    for (const ValueId value : graph_.node(id).outputs)
      for (const NodeId reader : readers_[static_cast<size_t>(value)]) try_update(reader);
    for (const ValueId value : graph_.node(id).inputs)
      for (const NodeId update : updates_[static_cast<size_t>(value)]) try_update(update);
  }

  // Runs an update as soon as its operands are there and nothing else will read what it replaces.
  void try_update(NodeId id) {
    if (is_placed(id) || graph_.node(id).phase != Phase::kUpdate) return;
    for (const ValueId value : graph_.node(id).inputs)
      if (!is_at_hand(graph_.value(value).producer)) return;
    for (const ValueId state : overwritten_[static_cast<size_t>(id)])
      for (const NodeId reader : readers_[static_cast<size_t>(state)])
        if (reader != id && !is_placed(reader)) return;
    place(id);
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<std::vector<ValueId>> overwritten_;  // By node.
  std::vector<std::vector<NodeId>> updates_;  // The reverse: by value, the nodes that replace it.
  std::vector<bool> lazy_;                    // By node.
  std::vector<bool> placed_;
  std::vector<NodeId> order_;
};

}  // namespace

Graph schedule(const Graph& lowered) {
  Rewriter rewriter(lowered);
  rewriter.copy_inputs();
  for (const NodeId id : Scheduler(lowered).order()) {
    Node node = lowered.node(id);
    for (ValueId& value : node.inputs) value = rewriter.at(value);
    for (auto& body : node.bodies)
      if (is_repeat(node)) body = std::make_shared<const Graph>(schedule(*body));
    rewriter.copy_node_as(id, std::move(node), output_types(lowered, lowered.node(id)));
  }
  rewriter.copy_outputs();
  return std::move(rewriter.to());
}

}  // namespace tessera
