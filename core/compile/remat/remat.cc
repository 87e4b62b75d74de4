// SPDX-License-Identifier: Apache-2.0
#include "core/compile/remat/remat.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/compile/remat/joint_loop.h"
#include "core/compile/remat/loop_body.h"
#include "core/compile/rewrite.h"
#include "core/compile/simplify.h"
#include "core/graph/op.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Splits the joined bodies of a backward loop and its forward loop again, according to the policy.
class LoopRemat {
 public:
  LoopRemat(Graph& graph, NodeId forward, NodeId backward)
      : graph_(graph),
        forward_id_(forward),
        backward_id_(backward),
        joint_(graph, forward, backward) {}

  void run(const RematPolicy& policy) {
    const Loop &forward = joint_.forward(), &backward = joint_.backward();
    LoopBody split(joint_.body(), forward, joint_.forward_end());
    for (size_t i = 0; i < backward.carries(); ++i)
      split.add_carry(joint_.joined(backward.carry_in(i)), joint_.joined(backward.carry_out(i)));
    for (const ValueId slice : joint_.other_slices()) split.add_slice(slice);
    for (size_t k = 0; k < backward.results(); ++k)
      split.add_result(joint_.joined(backward.slice_out(k)));
    split.save_if(RematDecision(joint_.body(), policy));
    rebuild(split);
  }

 private:
  void rebuild(LoopBody& split) {
    const LoopBody::Built built = split.build();
    const Loop& backward = joint_.backward();
    std::vector<ValueId> stacked = joint_.other_stacks();
    const std::vector<ValueId> read = split.extend_forward(graph_, forward_id_, built);
    stacked.insert(stacked.end(), read.begin(), read.end());
    Node& node = graph_.node(backward_id_);
    node.inputs.resize(backward.carries());
    node.inputs.insert(node.inputs.end(), stacked.begin(), stacked.end());
    for (const size_t i : built.constants) node.inputs.push_back(joint_.forward().constant(i));
    node.attributes = loop_attributes(backward.axis(), backward.count(), backward.carries(),
                                      stacked.size(), built.constants.size(), backward.reversed());
    node.bodies[0] = built.backward_body;
  }

  Graph& graph_;
  NodeId forward_id_, backward_id_;
  JointLoop joint_;
};

// For each backward loop that reads values saved by a forward loop: saves only what the policy
// saves, and recomputes the rest in the backward body. Loops within bodies are not changed.
Graph rematerialize_loops(Graph result, const RematPolicy& policy) {
  for (const NodeId id : result.nodes().ids()) {
    const Node& node = result.node(id);
    if (!is_repeat(node) || node.phase != Phase::kBackward || node.remat_clone) continue;
    const NodeId forward = find_forward_loop(result, node);
    if (forward != kNone) LoopRemat(result, forward, id).run(policy);
  }
  return result;
}

bool in_region(const Node& node) {
  return node.phase == Phase::kForward && node.remat_block != kNone;
}

// Returns the values that the backward pass recomputes. Values that leave their region are saved,
// since the next region is recomputed from them.
ValueFlags find_dropped(const Graph& graph, const RematPolicy& policy) {
  const RematDecision saves(graph, policy);
  ValueFlags dropped(graph.values().size());
  for (const Node& node : graph.nodes())
    if (in_region(node))
      for (const ValueId value : node.outputs) dropped[value] = !saves(value);
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kForward) continue;
    for (const ValueId value : node.inputs) {
      const NodeId producer = graph.value(value).producer;
      if (producer == kNone || graph.node(producer).remat_block == node.remat_block) continue;
      dropped[value] = false;
    }
  }
  for (const GraphOutput& output : graph.outputs()) dropped[output.value] = false;
  return dropped;
}

ValueFlags find_candidates(const Graph& graph) {
  return recompute_candidates(
      graph, {.is_forward = [&](NodeId id) { return graph.node(id).phase == Phase::kForward; },
              .is_backward = [&](NodeId id) { return graph.node(id).phase == Phase::kBackward; },
              .persists = [](ValueId) { return true; }});
}

// Recomputes the dropped forward values: each node once, right before the first backward node that
// needs it.
class Recomputation {
 public:
  Recomputation(Graph graph, ValueFlags dropped)
      : graph_(std::move(graph)),
        dropped_(std::move(dropped)),
        rewriter_(graph_),
        clones_(graph_.values().size()) {}

  Graph run() {
    const bool any = std::ranges::find(dropped_, true) != dropped_.end();
    if (!any && is_in_order(graph_)) return std::move(graph_);
    return rewriter_.rewritten(graph_.nodes().ids(), [&](NodeId id) {
      Node& node = graph_.node(id);
      if (node.phase == Phase::kForward) {
        const bool may_be_cloned = any_flagged(node.outputs, dropped_);
        may_be_cloned ? rewriter_.copy_node(id) : rewriter_.move_node(graph_, id);
      } else {
        for (ValueId& value : node.inputs) value = backward_operand(value);
        rewriter_.add_moved(graph_, take(node), id);
      }
    });
  }

 private:
  ValueId backward_operand(ValueId value) {
    if (!dropped_[value]) return rewriter_.at(value);
    ValueId& clone = clones_[value];
    if (clone == kNone) clone_producer(value);
    return clones_[value];
  }

  void clone_producer(ValueId value) {
    const Node& original = graph_.node(graph_.value(value).producer);
    Node clone = original;
    for (ValueId& operand : clone.inputs) operand = backward_operand(operand);
    clone.phase = Phase::kBackward;
    clone.remat_clone = true;
    Graph& to = rewriter_.to();
    const NodeId id = to.add_node(std::move(clone), output_types(graph_, original));
    for (size_t i = 0; i < original.outputs.size(); ++i)
      clones_[original.outputs[i]] = to.node(id).outputs[i];
  }

  // Moves the node out, without its outputs, which stay.
  static Node take(Node& node) {
    Node taken = std::move(node);
    node.outputs = std::move(taken.outputs);  // NOLINT(bugprone-use-after-move): given back.
    return taken;
  }

  Graph graph_;
  ValueFlags dropped_;
  Rewriter rewriter_;
  IndexedVector<ValueId, ValueId> clones_;  // Clones of values of the old graph.
};

// Returns the value that `value` is an alias or reshard of.
ValueId source_of(const Graph& graph, ValueId value) {
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
  const ValueId inner = loop.output_in(graph.value(value).result);
  if (loop.body().value(inner).producer == kNone) return loop.body().describe(inner);
  return name_of(loop.body(), inner);
}

// Gives values marked by save_for_backward the name of the mark.
Graph with_marked_names(Graph result) {
  for (const NodeId id : result.nodes().ids()) {
    Node& node = result.node(id);
    if (is_repeat(node))
      node.bodies[0] = std::make_shared<const Graph>(with_marked_names(*node.bodies[0]));
    if (node.op == &kSaveForBackwardOp)
      result.value(source_of(result, node.inputs[0])).name = node.attributes.get(key::kName);
  }
  return result;
}

// Lists the results of forward nodes that backward nodes read, without repetitions.
void list_saved(const Graph& graph, std::vector<SavedValue>& saved) {
  ValueFlags crosses(graph.values().size());
  for (const Node& node : graph.nodes()) {
    if (is_repeat(node)) list_saved(Loop(node).body(), saved);
    if (node.phase != Phase::kBackward) continue;
    for (const ValueId value : node.inputs) crosses[source_of(graph, value)] = true;
  }
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kForward) continue;
    for (const ValueId value : node.outputs)
      if (crosses[value]) saved.push_back({name_of(graph, value), node.path, graph.type(value)});
  }
}

Graph rematerialize_graph(Graph result, const RematPolicy& policy) {
  if (policy.kind != RematPolicy::Kind::kSaveEverything) {
    result = rematerialize_loops(std::move(result), policy);
    ValueFlags dropped = find_dropped(result, policy);
    result = Recomputation(std::move(result), std::move(dropped)).run();
  }
  result = dce(std::move(result));  // Unread cotangents do not count as readers.
  ValueFlags candidates = find_candidates(result);
  result = Recomputation(std::move(result), std::move(candidates)).run();
  for (const NodeId id : result.nodes().ids()) {
    Node& node = result.node(id);
    if (is_repeat(node))
      node.bodies[0] = std::make_shared<const Graph>(rematerialize_graph(*node.bodies[0], policy));
  }
  return result;
}

}  // namespace

Graph rematerialize(Graph graph, const RematPolicy& policy, std::vector<SavedValue>* saved) {
  Graph result = dce(rematerialize_graph(with_marked_names(merge_loops(std::move(graph))), policy));
  if (saved != nullptr) {
    saved->clear();
    list_saved(result, *saved);
  }
  return result;
}

}  // namespace tessera
