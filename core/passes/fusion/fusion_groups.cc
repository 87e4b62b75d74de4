// SPDX-License-Identifier: Apache-2.0
#include "core/passes/fusion/fusion_groups.h"

#include <algorithm>
#include <iterator>

#include "core/graph/op.h"

namespace tessera {
namespace {

// A loop of more does not keep its tiles in the first-level cache.
constexpr size_t kMostNodes = 48;
constexpr size_t kMostOperands = 16;

bool contains_node(const std::vector<NodeId>& sorted, NodeId id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

}  // namespace

FusionGroups::FusionGroups(const Graph& graph) : graph_(graph), readers_(consumers(graph)) {
  const auto end = static_cast<NodeId>(graph.nodes().size());
  for (NodeId id = 0; id < end; ++id) {
    unit_.push_back(id);
    foldable_.push_back(graph.node(id).op->foldable);
    refused_.push_back(0);
    units_.push_back({{id}, id});
  }
  for (NodeId id = 0; id < end; ++id) {
    if (!graph.node(id).op->fusible) continue;
    join_producers(id);
    join_siblings(id);
  }
}

void FusionGroups::join_producers(NodeId id) {
  for (const ValueId value : graph_.node(id).inputs) {
    const NodeId producer = graph_.value(value).producer;
    if (producer != kNone) try_merge(producer, id);
  }
}

// Loops that read the same array, whole, read it once. Thousands may read one scalar: a unit that
// could not be joined is not asked again until this one has changed.
void FusionGroups::join_siblings(NodeId id) {
  const Type& space = graph_.type(graph_.node(id).outputs[0]);
  ++round_;
  for (const ValueId value : graph_.node(id).inputs) {
    if (graph_.type(value).axes != space.axes) continue;
    for (const NodeId sibling : readers_[static_cast<size_t>(value)]) {
      if (sibling >= id) break;
      int64_t& refused = refused_[static_cast<size_t>(unit_[static_cast<size_t>(sibling)])];
      if (refused == round_) continue;
      refused = round_;
      if (try_merge(sibling, id)) ++round_;
    }
  }
}

// One iteration space and phase: what the forward pass makes is not put off to the backward pass.
bool FusionGroups::alike(NodeId first, NodeId second) const {
  const Node &a = graph_.node(first), &b = graph_.node(second);
  return a.op->fusible && b.op->fusible && a.phase == b.phase &&
         graph_.type(a.outputs[0]).axes == graph_.type(b.outputs[0]).axes;
}

bool FusionGroups::try_merge(NodeId first, NodeId second) {
  if (&unit_of(first) == &unit_of(second) || !alike(first, second)) return false;
  Unit &from = unit_of(first), &into = unit_of(second);
  if (from.nodes.size() + into.nodes.size() > kMostNodes) return false;
  std::vector<NodeId> nodes;
  std::merge(from.nodes.begin(), from.nodes.end(), into.nodes.begin(), into.nodes.end(),
             std::back_inserter(nodes));
  if (!small_enough(nodes)) return false;
  const NodeId position = find_position(nodes);
  if (position == kNone) return false;
  from.nodes.clear();
  const int32_t unit = unit_[static_cast<size_t>(second)];
  for (const NodeId id : nodes) unit_[static_cast<size_t>(id)] = unit;
  into.nodes = std::move(nodes);
  into.position = position;
  return true;
}

bool FusionGroups::small_enough(const std::vector<NodeId>& nodes) const {
  std::vector<ValueId> operands;  // So few that a search is cheap.
  const auto count = [&](ValueId value) {
    if (std::find(operands.begin(), operands.end(), value) == operands.end())
      operands.push_back(value);
    return operands.size() <= kMostOperands;
  };
  for (const NodeId id : nodes) {
    for (const ValueId value : graph_.node(id).inputs) {
      const NodeId producer = graph_.value(value).producer;
      if (producer != kNone && foldable_[static_cast<size_t>(producer)]) continue;
      if ((producer == kNone || !contains_node(nodes, producer)) && !count(value)) return false;
    }
    for (const ValueId value : graph_.node(id).outputs)
      for (const NodeId reader : readers_[static_cast<size_t>(value)])
        if (!contains_node(nodes, reader)) {
          if (!count(value)) return false;
          break;
        }
  }
  return true;
}

// The latest place of a member that comes after all the group reads and before all that read it;
// kNone if there is none.
NodeId FusionGroups::find_position(const std::vector<NodeId>& nodes) const {
  NodeId after = kNone, before = static_cast<NodeId>(graph_.nodes().size());
  for (const NodeId id : nodes) {
    for (const ValueId value : graph_.node(id).inputs) {
      const NodeId producer = graph_.value(value).producer;
      if (producer == kNone || contains_node(nodes, producer)) continue;
      after = std::max(after, unit_of(producer).position);
    }
    for (const ValueId value : graph_.node(id).outputs)
      for (const NodeId reader : readers_[static_cast<size_t>(value)])
        if (!contains_node(nodes, reader)) before = std::min(before, unit_of(reader).position);
  }
  for (auto id = nodes.rbegin(); id != nodes.rend(); ++id)
    if (*id > after && *id < before) return *id;
  return kNone;
}

std::vector<std::vector<NodeId>> FusionGroups::in_order() const {
  std::vector<const Unit*> units;
  for (const Unit& unit : units_)
    if (!unit.nodes.empty()) units.push_back(&unit);
  std::sort(units.begin(), units.end(),
            [](const Unit* a, const Unit* b) { return a->position < b->position; });
  std::vector<std::vector<NodeId>> result;
  for (const Unit* unit : units) result.push_back(unit->nodes);
  return result;
}

}  // namespace tessera
