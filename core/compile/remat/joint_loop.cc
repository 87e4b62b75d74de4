// SPDX-License-Identifier: Apache-2.0
#include "core/compile/remat/joint_loop.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/compile/rewrite.h"
#include "core/graph/op.h"
#include "core/ops/elementwise.h"

namespace tessera {

namespace {

// Returns whether `backward` can be the gradient of `forward`: equal iterations and constants.
bool same_iterations(const Loop& forward, const Loop& backward) {
  if (forward.axis() != backward.axis() || forward.count() != backward.count()) return false;
  for (size_t i = 0; i < backward.constants(); ++i) {
    bool found = false;
    for (size_t k = 0; k < forward.constants(); ++k)
      found = found || forward.constant(k) == backward.constant(i);
    if (!found) return false;
  }
  return true;
}

}  // namespace

NodeId find_forward_loop(const Graph& graph, const Node& backward) {
  const Loop loop(backward);
  for (size_t i = 0; i < loop.slices(); ++i) {
    const NodeId producer = graph.value(loop.stacked(i)).producer;
    if (producer == kNone || !is_repeat(graph.node(producer))) continue;
    const Node& node = graph.node(producer);
    const bool forward = node.phase == Phase::kForward || node.remat_clone;
    const bool stacked = graph.value(loop.stacked(i)).result >= Loop(node).carries();
    if (forward && stacked && same_iterations(Loop(node), loop)) return producer;
  }
  return kNone;
}

JointLoop::JointLoop(const Graph& graph, NodeId forward, NodeId backward)
    : forward_node_(graph.node(forward)),
      backward_node_(graph.node(backward)),
      forward_(forward_node_),
      backward_(backward_node_),
      body_(forward_.body()),
      forward_end_(body_.nodes().end_id()),
      map_(backward_.body().values().size()) {
  map_inputs();
  for (const NodeId id : backward_.body().nodes().ids()) append(id);
}

// Maps the inputs of the backward body to values of the joined body: forward values if possible.
void JointLoop::map_inputs() {
  map_[backward_.index()] = forward_.index();
  for (size_t i = 0; i < backward_.carries(); ++i)
    map_[backward_.carry_in(i)] = add_input(backward_.carry_in(i));
  for (size_t i = 0; i < backward_.slices(); ++i) {
    ValueId value = forward_slice(backward_.stacked(i));
    if (value == kNone) {
      value = add_input(backward_.slice_in(i));
      other_slices_.push_back(value);
      other_stacks_.push_back(backward_.stacked(i));
    }
    map_[backward_.slice_in(i)] = value;
  }
  for (size_t i = 0; i < backward_.constants(); ++i) {
    const ValueId value = forward_constant(backward_.constant(i));
    CHECK(value != kNone, "a backward loop reads a constant that its forward loop does not");
    map_[backward_.constant_in(i)] = value;
  }
}

ValueId JointLoop::add_input(ValueId value) {
  return body_.add_input(fmt::format("backward {}", body_.inputs().size()), InputKind::kLoop,
                         backward_.body().type(value));
}

ValueId JointLoop::forward_slice(ValueId outer) const {
  for (size_t k = 0; k < forward_.results(); ++k)
    if (forward_.result(k) == outer) return forward_.slice_out(k);
  for (size_t i = 0; i < forward_.slices(); ++i)
    if (forward_.stacked(i) == outer) return forward_.slice_in(i);
  return kNone;
}

ValueId JointLoop::forward_constant(ValueId outer) const {
  for (size_t i = 0; i < forward_.constants(); ++i)
    if (forward_.constant(i) == outer) return forward_.constant_in(i);
  return kNone;
}

void JointLoop::append(NodeId id) {
  const Node& original = backward_.body().node(id);
  Node node = original;
  for (ValueId& value : node.inputs) value = map_[value];
  if (const NodeId same = node.remat_clone ? find_original(node) : kNone; same != kNone) {
    for (size_t i = 0; i < original.outputs.size(); ++i)
      map_[original.outputs[i]] = body_.node(same).outputs[i];
    return;
  }
  const NodeId copy = body_.add_node(std::move(node), output_types(backward_.body(), original));
  for (size_t i = 0; i < original.outputs.size(); ++i) {
    const ValueId value = body_.node(copy).outputs[i];
    body_.value(value).name = backward_.body().value(original.outputs[i]).name;
    map_[original.outputs[i]] = value;
  }
}

// Returns the forward node that `clone` recomputes. Which nodes are recomputed is decided again.
NodeId JointLoop::find_original(const Node& clone) const {
  for (const NodeId id : IdRange(forward_end_)) {
    const Node& node = body_.node(id);
    if (node.op == clone.op && node.inputs == clone.inputs && node.bodies == clone.bodies &&
        node.attributes == clone.attributes)
      return id;
  }
  return kNone;
}

namespace {

// Returns whether iterations only add to each carry, so that they may run in any order.
bool only_sums(const Loop& loop) {
  const Graph& body = loop.body();
  const Consumers readers(body);
  for (size_t i = 0; i < loop.carries(); ++i) {
    const NodeId sum = body.value(loop.carry_out(i)).producer;
    if (sum == kNone || body.node(sum).op != &kAddOp) return false;
    if (!std::ranges::equal(readers[loop.carry_in(i)], std::array{sum})) return false;
    if (!readers[loop.carry_out(i)].empty()) return false;  // It would depend on their order.
  }
  return true;
}

// Returns whether a value that the backward loop reads, and the forward loop does not, needs a
// result of the forward loop.
bool waits_for_forward(const Graph& graph, NodeId forward, const JointLoop& joint) {
  ValueFlags later(graph.values().size());
  for (const ValueId value : graph.node(forward).outputs) later[value] = true;
  for (const Node& node : graph.nodes())
    if (any_flagged(node.inputs, later))
      for (const ValueId value : node.outputs) later[value] = true;
  for (size_t i = 0; i < joint.backward().carries(); ++i)
    if (later[joint.backward().initial(i)]) return true;
  return any_flagged(joint.other_stacks(), later);
}

bool may_merge(const Graph& graph, NodeId forward, NodeId backward) {
  return Loop(graph.node(forward)).carries() == 0 && only_sums(Loop(graph.node(backward))) &&
         !waits_for_forward(graph, forward, JointLoop(graph, forward, backward));
}

class LoopMerge {
 public:
  LoopMerge(Graph& graph, NodeId forward, NodeId backward)
      : graph_(graph),
        forward_id_(forward),
        backward_id_(backward),
        joint_(graph, forward, backward),
        rewriter_(graph),
        placed_(graph.nodes().size()) {}

  Graph run() {
    return rewriter_.rewritten(graph_.nodes().ids(), [&](NodeId id) { place(id); });
  }

 private:
  // Copies a node after the producers of its operands. In the old graph, those of the backward loop
  // come after the forward loop.
  void place(NodeId id) {
    if (id == kNone || placed_[id]) return;
    placed_[id] = true;
    const bool merged = id == forward_id_ || id == backward_id_;
    const std::vector<ValueId> operands = merged ? merged_operands() : graph_.node(id).inputs;
    for (const ValueId value : operands) place(graph_.value(value).producer);
    if (merged) {
      placed_[forward_id_] = placed_[backward_id_] = true;
      add_merged(operands);
    } else {
      rewriter_.move_node(graph_, id);
    }
  }

  std::vector<ValueId> merged_operands() const {
    const Loop &forward = joint_.forward(), &backward = joint_.backward();
    std::vector<ValueId> operands;
    for (size_t i = 0; i < backward.carries(); ++i) operands.push_back(backward.initial(i));
    for (size_t i = 0; i < forward.slices(); ++i) operands.push_back(forward.stacked(i));
    for (const ValueId value : joint_.other_stacks()) operands.push_back(value);
    for (size_t i = 0; i < forward.constants(); ++i) operands.push_back(forward.constant(i));
    return operands;
  }

  void add_merged(const std::vector<ValueId>& operands) {
    const Loop &forward = joint_.forward(), &backward = joint_.backward();
    Node node = graph_.node(forward_id_);
    node.inputs.clear();
    for (const ValueId value : operands) node.inputs.push_back(rewriter_.at(value));
    node.attributes = loop_attributes(forward.axis(), forward.count(), backward.carries(),
                                      forward.slices() + joint_.other_stacks().size(),
                                      forward.constants(), forward.reversed());
    node.bodies[0] = merged_body();
    node.remat_block = {};  // Gradients are not recomputed.
    std::vector<ValueId> results;
    for (size_t i = 0; i < backward.carries(); ++i) results.push_back(backward.last(i));
    for (size_t k = 0; k < forward.results(); ++k) results.push_back(forward.result(k));
    for (size_t k = 0; k < backward.results(); ++k) results.push_back(backward.result(k));
    rewriter_.add(std::move(node), results);
  }

  std::shared_ptr<const Graph> merged_body() const {
    const Loop &forward = joint_.forward(), &backward = joint_.backward();
    Rewriter rewriter(joint_.body());
    Graph& body = rewriter.to();
    const auto add_input = [&](ValueId value) {
      rewriter.set(value, body.add_input(fmt::format("operand {}", body.inputs().size()),
                                         InputKind::kLoop, joint_.body().type(value)));
    };
    add_input(forward.index());
    for (size_t i = 0; i < backward.carries(); ++i) add_input(joint_.joined(backward.carry_in(i)));
    for (size_t i = 0; i < forward.slices(); ++i) add_input(forward.slice_in(i));
    for (const ValueId value : joint_.other_slices()) add_input(value);
    for (size_t i = 0; i < forward.constants(); ++i) add_input(forward.constant_in(i));
    for (const NodeId id : joint_.body().nodes().ids()) rewriter.copy_node(id);
    const auto add_output = [&](ValueId value) {
      body.add_output(fmt::format("result {}", body.outputs().size()), rewriter.at(value));
    };
    for (size_t i = 0; i < backward.carries(); ++i)
      add_output(joint_.joined(backward.carry_out(i)));
    for (size_t k = 0; k < forward.results(); ++k) add_output(forward.slice_out(k));
    for (size_t k = 0; k < backward.results(); ++k)
      add_output(joint_.joined(backward.slice_out(k)));
    return std::make_shared<const Graph>(std::move(body));
  }

  Graph& graph_;
  NodeId forward_id_, backward_id_;
  JointLoop joint_;
  Rewriter rewriter_;
  NodeFlags placed_;
};

// Returns the graph with the first possible pair of loops merged, moving nodes out of `graph`; or
// nullopt.
std::optional<Graph> merge_first(Graph& graph) {
  for (const NodeId id : graph.nodes().ids()) {
    const Node& node = graph.node(id);
    if (!is_repeat(node) || node.phase != Phase::kBackward || node.remat_clone) continue;
    const NodeId forward = find_forward_loop(graph, node);
    if (forward != kNone && may_merge(graph, forward, id))
      return LoopMerge(graph, forward, id).run();
  }
  return std::nullopt;
}

}  // namespace

Graph merge_loops(Graph graph) {
  if (std::ranges::none_of(graph.nodes(), is_repeat)) return graph;
  while (std::optional<Graph> merged = merge_first(graph)) graph = *std::move(merged);
  for (const NodeId id : graph.nodes().ids()) {
    Node& node = graph.node(id);
    if (is_repeat(node))
      node.bodies[0] = std::make_shared<const Graph>(merge_loops(*node.bodies[0]));
  }
  return graph;
}

}  // namespace tessera
