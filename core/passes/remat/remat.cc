// SPDX-License-Identifier: Apache-2.0
#include "core/passes/remat/remat.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/passes/loop.h"
#include "core/passes/remat/recompute_candidates.h"
#include "core/passes/remat/remat_decision.h"
#include "core/passes/remat/remat_loop.h"
#include "core/passes/rewrite.h"
#include "core/passes/simplify.h"

namespace tessera {
namespace {

bool in_region(const Node& node) {
  return node.phase == Phase::kForward && node.remat_block != kNone;
}

// Per value: whether the backward pass computes it again. What leaves its region is kept, since
// it is what the next region is computed from.
std::vector<bool> find_dropped(const Graph& graph, const RematPolicy& policy) {
  const RematDecision kept(graph, policy);
  std::vector<bool> dropped(graph.values().size(), false);
  for (const Node& node : graph.nodes())
    if (in_region(node))
      for (const ValueId value : node.outputs) dropped[static_cast<size_t>(value)] = !kept(value);
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kForward) continue;
    for (const ValueId value : node.inputs) {
      const NodeId producer = graph.value(value).producer;
      if (producer == kNone || graph.node(producer).remat_block == node.remat_block) continue;
      dropped[static_cast<size_t>(value)] = false;
    }
  }
  for (const GraphOutput& output : graph.outputs())
    dropped[static_cast<size_t>(output.value)] = false;
  return dropped;
}

std::vector<bool> find_cheap(const Graph& graph) {
  return cheap_to_recompute(
      graph, {.is_forward = [&](NodeId id) { return graph.node(id).phase == Phase::kForward; },
              .is_backward = [&](NodeId id) { return graph.node(id).phase == Phase::kBackward; },
              .stays = [](ValueId) { return true; }});
}

// Computes the forward values that are dropped again, each node once, right before the first
// backward node that needs it.
class Recomputation {
 public:
  Recomputation(const Graph& graph, std::vector<bool> dropped)
      : graph_(graph),
        dropped_(std::move(dropped)),
        rewriter_(graph),
        clones_(graph.values().size(), kNone) {}

  Graph run() {
    rewriter_.copy_inputs();
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (graph_.node(id).phase == Phase::kForward) {
        rewriter_.copy_node(id);
        continue;
      }
      Node node = graph_.node(id);
      for (ValueId& value : node.inputs) value = backward_operand(value);
      rewriter_.copy_node_as(id, std::move(node), output_types(graph_, graph_.node(id)));
    }
    rewriter_.copy_outputs();
    return std::move(rewriter_.to());
  }

 private:
  ValueId backward_operand(ValueId value) {
    if (!dropped_[static_cast<size_t>(value)]) return rewriter_.at(value);
    ValueId& clone = clones_[static_cast<size_t>(value)];
    if (clone == kNone) clone_producer(value);
    return clones_[static_cast<size_t>(value)];
  }

  void clone_producer(ValueId value) {
    const Node& original = graph_.node(graph_.value(value).producer);
    Node clone = original;
    clone.outputs.clear();
    for (ValueId& operand : clone.inputs) operand = backward_operand(operand);
    clone.phase = Phase::kBackward;
    clone.remat_clone = true;
    Graph& to = rewriter_.to();
    const NodeId id = to.add_node(std::move(clone), output_types(graph_, original));
    for (size_t i = 0; i < original.outputs.size(); ++i)
      clones_[static_cast<size_t>(original.outputs[i])] = to.node(id).outputs[i];
  }

  const Graph& graph_;
  std::vector<bool> dropped_;
  Rewriter rewriter_;
  std::vector<ValueId> clones_;  // By value of the old graph.
};

// The value that `value` shows, through views, marks and reshards.
ValueId shown(const Graph& graph, ValueId value) {
  for (NodeId producer = graph.value(value).producer; producer != kNone;
       producer = graph.value(value).producer) {
    const Node& node = graph.node(producer);
    if (!is_alias(node) && node.op->op_class != OpClass::kReshard) return value;
    value = node.inputs[0];
  }
  return value;
}

std::string name_of(const Graph& graph, ValueId value) {
  if (!graph.value(value).name.empty()) return graph.value(value).name;
  const Node& producer = graph.node(graph.value(value).producer);
  if (!is_repeat(producer)) return std::string(producer.op->name);
  const Loop loop(producer);
  const int64_t result = graph.value(value).result;
  const ValueId inner =
      result < loop.carries() ? loop.carry_out(result) : loop.slice_out(result - loop.carries());
  if (loop.body().value(inner).producer == kNone) return loop.body().describe(inner);
  return name_of(loop.body(), inner);
}

// The graph in which what is marked to be saved has the mark's name.
Graph with_marked_names(const Graph& graph) {
  Graph result = graph;
  for (NodeId id = 0; id < static_cast<NodeId>(result.nodes().size()); ++id) {
    Node& node = result.node(id);
    if (is_repeat(node))
      node.bodies[0] = std::make_shared<const Graph>(with_marked_names(*node.bodies[0]));
    if (node.op == &kSaveForBackwardOp)
      result.value(shown(result, node.inputs[0])).name = node.attributes.get<std::string>("name");
  }
  return result;
}

// What forward nodes make and others read, each once, in forward order.
void list_saved(const Graph& graph, std::vector<SavedValue>& saved) {
  std::vector<bool> crosses(graph.values().size(), false);
  for (const Node& node : graph.nodes()) {
    if (is_repeat(node)) list_saved(Loop(node).body(), saved);
    if (node.phase != Phase::kBackward) continue;
    for (const ValueId value : node.inputs)
      crosses[static_cast<size_t>(shown(graph, value))] = true;
  }
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kForward) continue;
    for (const ValueId value : node.outputs)
      if (crosses[static_cast<size_t>(value)])
        saved.push_back({name_of(graph, value), node.path, graph.type(value)});
  }
}

Graph rematerialize_graph(const Graph& graph, const RematPolicy& policy) {
  Graph result = graph;
  if (policy.kind != RematPolicy::Kind::kSaveEverything) {
    result = rematerialize_loops(result, policy);
    result = Recomputation(result, find_dropped(result, policy)).run();
  }
  result = dce(result);  // What a vjp gave that nobody asked for is no reader.
  result = Recomputation(result, find_cheap(result)).run();
  for (NodeId id = 0; id < static_cast<NodeId>(result.nodes().size()); ++id) {
    Node& node = result.node(id);
    if (is_repeat(node))
      node.bodies[0] = std::make_shared<const Graph>(rematerialize_graph(*node.bodies[0], policy));
  }
  return result;
}

}  // namespace

Graph rematerialize(const Graph& graph, const RematPolicy& policy, std::vector<SavedValue>* saved) {
  const Graph result = dce(rematerialize_graph(with_marked_names(graph), policy));
  if (saved != nullptr) {
    saved->clear();
    list_saved(result, *saved);
  }
  return result;
}

}  // namespace tessera
