// SPDX-License-Identifier: Apache-2.0
#include "core/compile/fuse/fuse.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/compile/rewrite.h"
#include "core/compile/simplify.h"
#include "core/graph/op.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

// With more, the tiles of a loop do not fit into the L1 cache.
constexpr size_t kMostNodes = 48;
constexpr size_t kMostOperands = 16;

bool contains_node(const std::vector<NodeId>& sorted, NodeId id) {
  return std::ranges::binary_search(sorted, id);
}

// Which nodes run as one loop, and in which order. A unit is a group of nodes or a single node. The
// positions of producers precede those of their readers, so that no grouping makes a cycle.
class FusionGroups {
 public:
  FusionGroups(const Graph& graph, const Consumers& readers) : graph_(graph), readers_(readers) {
    for (const NodeId id : graph.nodes().ids()) {
      unit_.push_back(units_.push_back({{id}, id}));
      refused_.push_back(0);
    }
    for (const NodeId id : graph.nodes().ids()) {
      if (!graph.node(id).op->fusible) continue;
      join_producers(id);
      join_siblings(id);
    }
  }

  // The nodes of each unit in graph order, units by position.
  std::vector<std::vector<NodeId>> in_order() const {
    std::vector<const Unit*> units;
    for (const Unit& unit : units_)
      if (!unit.nodes.empty()) units.push_back(&unit);
    std::ranges::sort(units,
                      [](const Unit* a, const Unit* b) { return a->position < b->position; });
    std::vector<std::vector<NodeId>> result;
    for (const Unit* unit : units) result.push_back(unit->nodes);
    return result;
  }

 private:
  using UnitId = Id<struct UnitTag>;
  struct Unit {
    std::vector<NodeId> nodes;  // In order; empty once merged into another.
    NodeId position;            // The id of one of its nodes.
  };

  Unit& unit_of(NodeId id) { return units_[unit_[id]]; }
  const Unit& unit_of(NodeId id) const { return units_[unit_[id]]; }

  void join_producers(NodeId id) {
    for (const ValueId value : graph_.node(id).inputs) {
      const NodeId producer = graph_.value(value).producer;
      if (producer != kNone) try_merge(producer, id);
    }
  }

  // Merges loops that read the same whole array, which is then read once. An array may have
  // thousands of readers: after a refusal a unit is tried again only when this unit has changed.
  void join_siblings(NodeId id) {
    const Type& space = graph_.type(graph_.node(id).outputs[0]);
    ++round_;
    for (const ValueId value : graph_.node(id).inputs) {
      if (graph_.type(value).axes != space.axes) continue;
      for (const NodeId sibling : readers_[value]) {
        if (sibling >= id) break;
        int64_t& refused = refused_[unit_[sibling]];
        if (refused == round_) continue;
        refused = round_;
        if (try_merge(sibling, id)) ++round_;
      }
    }
  }

  bool try_merge(NodeId first, NodeId second) {
    if (&unit_of(first) == &unit_of(second) || !compatible(first, second)) return false;
    Unit &from = unit_of(first), &into = unit_of(second);
    if (from.nodes.size() + into.nodes.size() > kMostNodes) return false;
    std::vector<NodeId> nodes;
    std::merge(from.nodes.begin(), from.nodes.end(), into.nodes.begin(), into.nodes.end(),
               std::back_inserter(nodes));
    if (!small_enough(nodes)) return false;
    const NodeId position = find_position(nodes);
    if (position == kNone) return false;
    from.nodes.clear();
    const UnitId unit = unit_[second];
    for (const NodeId id : nodes) unit_[id] = unit;
    into.nodes = std::move(nodes);
    into.position = position;
    return true;
  }

  // Whether two nodes have the same iteration space and phase. Across phases, forward work would be
  // delayed to the backward pass.
  bool compatible(NodeId first, NodeId second) const {
    const Node &a = graph_.node(first), &b = graph_.node(second);
    return a.op->fusible && b.op->fusible && a.phase == b.phase &&
           graph_.type(a.outputs[0]).axes == graph_.type(b.outputs[0]).axes;
  }

  bool small_enough(const std::vector<NodeId>& nodes) const {
    std::vector<ValueId> operands;  // Few, so a linear search is cheap.
    const auto count = [&](ValueId value) {
      if (std::ranges::find(operands, value) == operands.end()) operands.push_back(value);
      return operands.size() <= kMostOperands;
    };
    for (const NodeId id : nodes) {
      for (const ValueId value : graph_.node(id).inputs) {
        const NodeId producer = graph_.value(value).producer;
        if (producer != kNone && graph_.node(producer).op->foldable) continue;
        if ((producer == kNone || !contains_node(nodes, producer)) && !count(value)) return false;
      }
      for (const ValueId value : graph_.node(id).outputs)
        for (const NodeId reader : readers_[value])
          if (!contains_node(nodes, reader)) {
            if (!count(value)) return false;
            break;
          }
    }
    return true;
  }

  // The position of the last node in the group that follows all producers and precedes all readers
  // of the group; kNone if no position does both.
  NodeId find_position(const std::vector<NodeId>& nodes) const {
    NodeId after, before = graph_.nodes().end_id();
    for (const NodeId id : nodes) {
      for (const ValueId value : graph_.node(id).inputs) {
        const NodeId producer = graph_.value(value).producer;
        if (producer == kNone || contains_node(nodes, producer)) continue;
        after = std::max(after, unit_of(producer).position);
      }
      for (const ValueId value : graph_.node(id).outputs)
        for (const NodeId reader : readers_[value])
          if (!contains_node(nodes, reader)) before = std::min(before, unit_of(reader).position);
    }
    for (auto id = nodes.rbegin(); id != nodes.rend(); ++id)
      if (*id > after && *id < before) return *id;
    return kNone;
  }

  const Graph& graph_;
  const Consumers& readers_;
  IndexedVector<UnitId, Unit> units_;
  IndexedVector<NodeId, UnitId> unit_;
  IndexedVector<UnitId, int64_t> refused_;  // The round in which a merge was last refused.
  int64_t round_ = 0;
};

// The body of a fused node: the nodes of a group and the generators they read. A graph has many
// small groups, so memory and time are proportional to the group.
class FusedBody {
 public:
  // `is_read_outside(value)`: whether other nodes read it.
  template <typename IsReadOutside>
  FusedBody(const Graph& graph, const Rewriter& rewriter, const std::vector<NodeId>& nodes,
            IsReadOutside is_read_outside)
      : graph_(graph), rewriter_(rewriter) {
    for (const NodeId id : nodes) copy(id);
    for (const NodeId id : nodes) {
      const ValueId value = graph.node(id).outputs[0];
      if (!is_read_outside(value)) continue;
      outputs_.push_back(value);
      body_.add_output(fmt::format("{}", outputs_.size() - 1), map_.at(value));
    }
  }

  // Values of the graph: operands and results of the fused node.
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  Graph& body() { return body_; }

 private:
  void copy(NodeId id) {
    for (const ValueId value : graph_.node(id).inputs)
      if (!map_.contains(value)) add_operand(value);
    Node node = graph_.node(id);
    for (ValueId& value : node.inputs) value = map_.at(value);
    const ValueId made = node.outputs[0];
    const std::vector<SharedType> types = output_types(graph_, node);
    const NodeId copied = body_.add_node(std::move(node), types);
    const ValueId inner = body_.node(copied).outputs[0];
    body_.value(inner).name = graph_.value(made).name;
    map_[made] = inner;
  }

  void add_operand(ValueId value) {
    const NodeId producer = graph_.value(value).producer;
    if (producer != kNone && graph_.node(producer).op->foldable) return copy(producer);
    const Value& operand = rewriter_.to().value(rewriter_.at(value));
    const ValueId inner =
        body_.add_input(fmt::format("{}", inputs_.size()), InputKind::kLoop, operand.type);
    body_.value(inner).name = operand.name;
    map_[value] = inner;
    inputs_.push_back(value);
  }

  const Graph& graph_;
  const Rewriter& rewriter_;  // Has the operands of the group, whose nodes may have been moved.
  Graph body_;
  std::unordered_map<ValueId, ValueId> map_;  // From values of the graph to values of the body.
  std::vector<ValueId> inputs_, outputs_;
};

class Fuser : GroupPass {
 public:
  using GroupPass::GroupPass;

  Graph fuse() {
    return dce(rewriter_.rewritten(FusionGroups(graph_, readers_).in_order(),
                                   [&](const std::vector<NodeId>& nodes) {
                                     if (is_worth_fusing(nodes)) {
                                       add_fused(nodes);
                                     } else {
                                       add_alone(nodes[0]);
                                     }
                                   }));
  }

 private:
  // Several nodes, or one that reads a generator.
  bool is_worth_fusing(const std::vector<NodeId>& nodes) const {
    if (nodes.size() > 1) return true;
    const Node& node = graph_.node(nodes[0]);
    return node.op->fusible && std::ranges::any_of(node.inputs, [&](ValueId value) {
             const NodeId producer = graph_.value(value).producer;
             return producer != kNone && graph_.node(producer).op->foldable;
           });
  }

  void add_alone(NodeId id) {
    // A generator is copied into each group that reads it.
    const bool is_read_again = graph_.node(id).op->foldable;
    if (is_read_again) {
      rewriter_.copy_node(id);
      return;
    }
    move_node(id, tessera::fuse);
  }

  // Whether a node outside the group, or a graph output, reads the value.
  bool is_read_outside(ValueId value, const std::vector<NodeId>& nodes) const {
    const std::span<const NodeId> readers = readers_[value];
    return is_output_[value] || std::ranges::any_of(readers, [&](NodeId reader) {
             return !std::ranges::binary_search(nodes, reader);
           });
  }

  void add_fused(const std::vector<NodeId>& nodes) {
    FusedBody body(graph_, rewriter_, nodes,
                   [&](ValueId value) { return is_read_outside(value, nodes); });
    Node node = graph_.node(nodes.back());  // For its source line and layer path.
    node.op = &kFusedOp;
    node.attributes = {};
    node.inputs.clear();
    for (const ValueId value : body.inputs()) node.inputs.push_back(rewriter_.at(value));
    node.bodies = {std::make_shared<const Graph>(std::move(body.body()))};
    rewriter_.add(std::move(node), body.outputs());
  }
};

}  // namespace

Graph fuse(Graph lowered) { return Fuser(std::move(lowered)).fuse(); }

}  // namespace tessera
