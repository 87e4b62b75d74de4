// SPDX-License-Identifier: Apache-2.0
// Which nodes run as one loop, and when. Every unit (a group, or a node by itself) has a position;
// producers' positions come before their readers', so that no grouping makes a cycle.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

class FusionGroups {
 public:
  explicit FusionGroups(const Graph& graph);

  // Units in order of position, each with its nodes in the graph's order.
  std::vector<std::vector<NodeId>> in_order() const;

 private:
  struct Unit {
    std::vector<NodeId> nodes;  // In order; empty once merged into another.
    NodeId position = kNone;    // The id of one of its nodes.
  };

  Unit& unit_of(NodeId id) { return units_[static_cast<size_t>(unit_[static_cast<size_t>(id)])]; }
  const Unit& unit_of(NodeId id) const {
    return units_[static_cast<size_t>(unit_[static_cast<size_t>(id)])];
  }
  void join_producers(NodeId id);
  void join_siblings(NodeId id);
  bool try_merge(NodeId first, NodeId second);
  bool alike(NodeId first, NodeId second) const;
  bool small_enough(const std::vector<NodeId>& nodes) const;
  NodeId find_position(const std::vector<NodeId>& nodes) const;

  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;  // By value.
  std::vector<Unit> units_;
  std::vector<int32_t> unit_;     // By node.
  std::vector<bool> foldable_;    // By node.
  std::vector<int64_t> refused_;  // By unit: the round in which it was last refused.
  int64_t round_ = 0;
};

}  // namespace tessera
