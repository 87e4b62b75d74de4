// SPDX-License-Identifier: Apache-2.0
#include "core/passes/remat/remat_loop.h"

#include <memory>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/passes/loop.h"
#include "core/passes/remat/loop_body.h"
#include "core/passes/remat/remat_decision.h"
#include "core/passes/rewrite.h"

namespace tessera {
namespace {

// The forward loop whose results the loop `backward` reads, or kNone.
NodeId find_forward_loop(const Graph& graph, const Node& backward) {
  const Loop loop(backward);
  for (int64_t i = 0; i < loop.slices(); ++i) {
    const NodeId producer = graph.value(loop.stacked(i)).producer;
    if (producer == kNone || !is_repeat(graph.node(producer))) continue;
    const Node& node = graph.node(producer);
    const bool forward = node.phase == Phase::kForward || node.remat_clone;
    if (forward && graph.value(loop.stacked(i)).result >= Loop(node).carries()) return producer;
  }
  return kNone;
}

// Joins the bodies of a backward loop and its forward loop, and parts them again as policy says.
class LoopRemat {
 public:
  LoopRemat(Graph& graph, NodeId forward, NodeId backward)
      : graph_(graph),
        forward_id_(forward),
        backward_id_(backward),
        forward_node_(graph.node(forward)),
        backward_node_(graph.node(backward)),
        forward_(forward_node_),
        backward_(backward_node_),
        joint_(forward_.body()),
        forward_nodes_(static_cast<NodeId>(joint_.nodes().size())) {}

  void run(const RematPolicy& policy) {
    map_inputs();
    for (NodeId id = 0; id < static_cast<NodeId>(backward_.body().nodes().size()); ++id) append(id);
    LoopBody parts(joint_, forward_, forward_nodes_);
    for (int64_t i = 0; i < backward_.carries(); ++i)
      parts.add_carry(joined(backward_.carry_in(i)), joined(backward_.carry_out(i)));
    for (const ValueId slice : other_slices_) parts.add_slice(slice);
    for (int64_t k = 0; k < backward_.results(); ++k)
      parts.add_result(joined(backward_.slice_out(k)));
    const RematDecision kept(joint_, policy);
    parts.save_if(kept);
    rebuild(parts.build());
  }

 private:
  ValueId& joined(ValueId value) { return map_[static_cast<size_t>(value)]; }

  // The backward body's inputs as values of the joint graph: forward values where they are such.
  void map_inputs() {
    map_.assign(backward_.body().values().size(), kNone);
    joined(backward_.index()) = forward_.index();
    for (int64_t i = 0; i < backward_.carries(); ++i)
      joined(backward_.carry_in(i)) = add_input(backward_.carry_in(i));
    for (int64_t i = 0; i < backward_.slices(); ++i) {
      ValueId value = forward_slice(backward_.stacked(i));
      if (value == kNone) {
        value = add_input(backward_.slice_in(i));
        other_slices_.push_back(value);
        other_stacks_.push_back(backward_.stacked(i));
      }
      joined(backward_.slice_in(i)) = value;
    }
    for (int64_t i = 0; i < backward_.constants(); ++i) {
      const ValueId value = forward_constant(backward_.constant(i));
      CHECK(value != kNone, "a backward loop reads a constant that its forward loop does not");
      joined(backward_.constant_in(i)) = value;
    }
  }

  ValueId add_input(ValueId value) {
    return joint_.add_input(fmt::format("backward {}", joint_.inputs().size()), InputKind::kLoop,
                            backward_.body().type(value));
  }

  ValueId forward_slice(ValueId outer) const {
    for (int64_t k = 0; k < forward_.results(); ++k)
      if (forward_.result(k) == outer) return forward_.slice_out(k);
    for (int64_t i = 0; i < forward_.slices(); ++i)
      if (forward_.stacked(i) == outer) return forward_.slice_in(i);
    return kNone;
  }

  ValueId forward_constant(ValueId outer) const {
    for (int64_t i = 0; i < forward_.constants(); ++i)
      if (forward_.constant(i) == outer) return forward_.constant_in(i);
    return kNone;
  }

  void append(NodeId id) {
    const Node& original = backward_.body().node(id);
    Node node = original;
    for (ValueId& value : node.inputs) value = joined(value);
    if (const NodeId same = node.remat_clone ? find_original(node) : kNone; same != kNone) {
      for (size_t i = 0; i < original.outputs.size(); ++i)
        joined(original.outputs[i]) = joint_.node(same).outputs[i];
      return;
    }
    const NodeId copy = joint_.add_node(std::move(node), output_types(backward_.body(), original));
    for (size_t i = 0; i < original.outputs.size(); ++i) {
      const ValueId value = joint_.node(copy).outputs[i];
      joint_.value(value).name = backward_.body().value(original.outputs[i]).name;
      joined(original.outputs[i]) = value;
    }
  }

  // The forward node that `clone` computes again: what is recomputed is decided anew.
  NodeId find_original(const Node& clone) const {
    for (NodeId id = 0; id < forward_nodes_; ++id) {
      const Node& node = joint_.node(id);
      if (node.op == clone.op && node.inputs == clone.inputs && node.bodies == clone.bodies &&
          node.attributes == clone.attributes)
        return id;
    }
    return kNone;
  }

  void rebuild(LoopBody::Built built) {
    graph_.node(forward_id_).bodies[0] =
        std::make_shared<const Graph>(std::move(built.forward_body));
    std::vector<ValueId> stacked = other_stacks_;
    for (const ValueId saved : built.saved) {
      const ValueId result = graph_.add_result(
          forward_id_, stacked_type(joint_.type(saved), forward_.axis(), forward_.count()));
      graph_.value(result).name = joint_.value(saved).name;
      stacked.push_back(result);
    }
    for (const int64_t slice : built.slices) stacked.push_back(forward_.stacked(slice));

    Node& node = graph_.node(backward_id_);
    node.inputs.resize(static_cast<size_t>(backward_.carries()));
    node.inputs.insert(node.inputs.end(), stacked.begin(), stacked.end());
    for (const int64_t i : built.constants) node.inputs.push_back(forward_.constant(i));
    node.attributes =
        loop_attributes(backward_.axis(), backward_.count(), backward_.carries(),
                        static_cast<int64_t>(stacked.size()),
                        static_cast<int64_t>(built.constants.size()), backward_.reversed());
    node.bodies[0] = std::make_shared<const Graph>(std::move(built.backward_body));
  }

  Graph& graph_;
  NodeId forward_id_, backward_id_;
  Node forward_node_, backward_node_;  // As they were.
  Loop forward_, backward_;
  Graph joint_;  // The forward body, then the backward body's nodes.
  NodeId forward_nodes_;
  std::vector<ValueId> map_;                          // From the backward body to the joint graph.
  std::vector<ValueId> other_slices_, other_stacks_;  // Not of the forward loop: in the joint
                                                      // graph, and the outer operands.
};

}  // namespace

Graph rematerialize_loops(const Graph& graph, const RematPolicy& policy) {
  Graph result = graph;
  for (NodeId id = 0; id < static_cast<NodeId>(result.nodes().size()); ++id) {
    const Node& node = result.node(id);
    if (!is_repeat(node) || node.phase != Phase::kBackward || node.remat_clone) continue;
    const NodeId forward = find_forward_loop(result, node);
    if (forward != kNone) LoopRemat(result, forward, id).run(policy);
  }
  return result;
}

}  // namespace tessera
