// SPDX-License-Identifier: Apache-2.0
// Divides the backward pass for schedules such as ZB-H1, which compute the gradients of a piece's
// input and of its weights in different tasks (Qi et al., 2024, arXiv 2401.10241).
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/compile/rewrite.h"
#include "core/compile/simplify.h"
#include "core/compile/stages/placement.h"
#include "core/graph/layer_pieces.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

// Divides the body of a backward loop.
class BodySplit {
 public:
  explicit BodySplit(const Loop& loop)
      : loop_(loop), body_(loop.body()), is_crossing_(body_.values().size()) {
    std::vector<ValueId> carries;
    for (size_t i = 0; i < loop_.carries(); ++i) carries.push_back(loop_.carry_out(i));
    to_carries_ = ancestors(body_, carries);
    mark_crossing();
  }

  // Returns the values that the first loop stacks for the second, in this order.
  const std::vector<ValueId>& crossing() const { return crossing_; }

  std::shared_ptr<const Graph> first() const {
    Rewriter rewriter(body_);
    rewriter.copy_inputs();
    for (const NodeId id : body_.nodes().ids())
      if (is_first(id)) rewriter.copy_node(id);
    Graph& graph = rewriter.to();
    for (size_t i = 0; i < loop_.carries(); ++i)
      graph.add_output(fmt::format("carry {}", i), rewriter.at(loop_.carry_out(i)));
    for (const ValueId value : crossing_)
      graph.add_output(fmt::format("slice {}", graph.outputs().size()), rewriter.at(value));
    return std::make_shared<const Graph>(std::move(graph));
  }

  // Returns the second body. Inputs: index, slices of the loop, crossing values, constants of the
  // loop.
  std::shared_ptr<const Graph> second() const {
    Rewriter rewriter(body_);
    Graph& graph = rewriter.to();
    const auto add_input = [&](ValueId value) {
      const ValueId made = graph.add_input(fmt::format("input {}", graph.inputs().size()),
                                           InputKind::kLoop, body_.type(value));
      graph.value(made).name = body_.value(value).name;
      rewriter.set(value, made);
    };
    add_input(loop_.index());
    for (size_t i = 0; i < loop_.slices(); ++i) add_input(loop_.slice_in(i));
    for (const ValueId value : crossing_) add_input(value);
    for (size_t i = 0; i < loop_.constants(); ++i) add_input(loop_.constant_in(i));
    for (const NodeId id : body_.nodes().ids())
      if (!is_first(id)) rewriter.copy_node(id);
    for (size_t k = 0; k < loop_.results(); ++k)
      graph.add_output(fmt::format("slice {}", k), rewriter.at(loop_.slice_out(k)));
    return std::make_shared<const Graph>(std::move(graph));
  }

 private:
  // Returns whether carries are computed from the node.
  bool is_first(NodeId id) const { return any_flagged(body_.node(id).outputs, to_carries_); }

  void mark_crossing() {
    const auto read = [&](ValueId value) {
      const NodeId producer = body_.value(value).producer;
      const bool is_carry = producer == kNone && is_carry_in(value);
      if (is_crossing_[value] || !(is_carry || (producer != kNone && is_first(producer)))) return;
      is_crossing_[value] = true;
      crossing_.push_back(value);
    };
    for (const NodeId id : body_.nodes().ids())
      if (!is_first(id))
        for (const ValueId value : body_.node(id).inputs) read(value);
    for (size_t k = 0; k < loop_.results(); ++k) read(loop_.slice_out(k));
  }

  bool is_carry_in(ValueId value) const {
    for (size_t i = 0; i < loop_.carries(); ++i)
      if (loop_.carry_in(i) == value) return true;
    return false;
  }

  const Loop& loop_;
  const Graph& body_;
  ValueFlags to_carries_;  // Values from which carries are computed.
  ValueFlags is_crossing_;
  std::vector<ValueId> crossing_;
};

// Returns whether this is the gradient of a loop over layers. It need not read their weights: the
// forward pass may have saved all that it needs of them.
bool is_backward_loop(const Node& node) {
  return is_repeat(node) && node.phase != Phase::kForward && Loop(node).axis() == kLayersAxis;
}

void add_split(Rewriter& rewriter, const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const Loop loop(node);
  const BodySplit split(loop);
  Node first = rewriter.mapped(id);
  first.bodies = {split.first()};
  std::vector<SharedType> types;
  std::vector<ValueId> carries;
  for (size_t i = 0; i < loop.carries(); ++i) {
    types.push_back(graph.type(loop.last(i)));
    carries.push_back(loop.last(i));
  }
  for (const ValueId value : split.crossing())
    types.push_back(stacked_type(loop.body().type(value), loop.axis(), loop.count()));
  const NodeId made = rewriter.add(std::move(first), carries, types);
  const std::vector<ValueId> outputs = rewriter.to().node(made).outputs;

  Node second = node;
  second.inputs.clear();
  for (size_t i = 0; i < loop.slices(); ++i) second.inputs.push_back(rewriter.at(loop.stacked(i)));
  second.inputs.insert(second.inputs.end(),
                       outputs.begin() + static_cast<std::ptrdiff_t>(loop.carries()),
                       outputs.end());
  for (size_t i = 0; i < loop.constants(); ++i)
    second.inputs.push_back(rewriter.at(loop.constant(i)));
  second.attributes =
      loop_attributes(loop.axis(), loop.count(), 0, loop.slices() + split.crossing().size(),
                      loop.constants(), loop.reversed());
  second.attributes.set(kBackwardWeightLoop, true);
  second.bodies = {split.second()};
  std::vector<ValueId> results;
  for (size_t k = 0; k < loop.results(); ++k) results.push_back(loop.result(k));
  rewriter.add(std::move(second), results);
}

Graph with_split_loops(const Graph& graph, bool in_microbatch) {
  Rewriter rewriter(graph);
  return rewriter.rewritten(graph.nodes().ids(), [&](NodeId id) {
    const Node& node = graph.node(id);
    if (in_microbatch && is_backward_loop(node)) return add_split(rewriter, graph, id);
    Node copy = rewriter.mapped(id);
    if (!in_microbatch && is_repeat(node))
      copy.bodies = {std::make_shared<const Graph>(with_split_loops(*node.bodies[0], true))};
    rewriter.add(std::move(copy), node.outputs);
  });
}

}  // namespace

Graph split_backward(const Graph& localized) { return dce(with_split_loops(localized, false)); }

}  // namespace tessera
