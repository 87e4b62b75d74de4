// SPDX-License-Identifier: Apache-2.0
// Sums of gradients over microbatches. Where a loop over layers makes a stack of gradients that is
// added to an input, the add moves into the loop, slice by slice. The stack is then not stored, and
// the product that makes a slice, or the wait for its collective, is near the add. The bits are the
// same. Loop bodies are treated alike. Linear in the graph.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/compile/rewrite.h"
#include "core/compile/schedule/schedule.h"
#include "core/graph/op.h"
#include "core/ops/elementwise.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// The add of an input of the graph to a stacked result of a loop.
struct StackedSum {
  NodeId add;
  ValueId sum;        // The input.
  size_t result = 0;  // Index of the result in Loop.
};

class LoopAccumulator : GroupPass {
 public:
  using GroupPass::GroupPass;

  Graph run() {
    std::map<NodeId, std::vector<StackedSum>> sums;  // By loop.
    NodeFlags moves(graph_.nodes().size());
    for (const NodeId id : graph_.nodes().ids())
      if (const auto found = stacked_sum(id)) {
        moves[id] = true;
        sums[graph_.value(term_of(*found)).producer].push_back(*found);
      }
    return rewriter_.rewritten(graph_.nodes().ids(), [&](NodeId id) {
      if (const auto found = sums.find(id); found != sums.end())
        add_loop(id, found->second);
      else if (!moves[id])
        move_node(id, accumulate_in_loops);
    });
  }

 private:
  bool is_read_once(ValueId value) const {
    return readers_[value].size() == 1 && !is_output_[value];
  }
  bool is_input(ValueId value) const { return graph_.value(value).producer == kNone; }

  ValueId term_of(const StackedSum& found) const {
    const std::vector<ValueId>& operands = graph_.node(found.add).inputs;
    return operands[operands[0] == found.sum ? 1 : 0];
  }

  std::optional<StackedSum> stacked_sum(NodeId id) const {
    const Node& add = graph_.node(id);
    if (add.op != &kAddOp || add.phase != Phase::kBackward) return std::nullopt;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const ValueId sum = add.inputs[i], term = add.inputs[1 - i];
      if (!is_input(sum) || is_input(term) || !is_read_once(sum) || !is_read_once(term)) continue;
      const Node& producer = graph_.node(graph_.value(term).producer);
      if (!is_repeat(producer) || !(graph_.type(sum) == graph_.type(term))) continue;
      const Loop loop(producer);
      for (size_t k = 0; k < loop.results(); ++k)
        if (loop.result(k) == term) return StackedSum{id, sum, k};
    }
    return std::nullopt;
  }

  // The sums become stacked operands of the loop, behind the others.
  void add_loop(NodeId id, const std::vector<StackedSum>& sums) {
    const Loop loop(graph_.node(id));
    Node node = rewriter_.mapped(id);
    std::vector<ValueId> results = graph_.node(id).outputs;
    const size_t slices_end = loop.carries() + loop.slices();
    auto place = node.inputs.begin() + static_cast<std::ptrdiff_t>(slices_end);
    for (const StackedSum& each : sums) {
      place = std::next(node.inputs.insert(place, rewriter_.at(each.sum)));
      results[loop.carries() + each.result] = graph_.node(each.add).outputs[0];
    }
    node.attributes.set(key::kStacked, loop.slices() + sums.size());
    node.bodies[0] = std::make_shared<const Graph>(accumulate_in_loops(body_with(loop, sums)));
    rewriter_.add(std::move(node), results);
  }

  Graph body_with(const Loop& loop, const std::vector<StackedSum>& sums) const {
    const Graph& body = loop.body();
    Rewriter inner(body);
    inner.copy_inputs();
    for (const NodeId each : body.nodes().ids()) inner.copy_node(each);
    Graph& to = inner.to();
    std::vector<ValueId> order, outputs;
    for (const GraphInput& input : to.inputs()) order.push_back(input.value);
    for (const GraphOutput& output : body.outputs()) outputs.push_back(inner.at(output.value));
    auto place = order.begin() + static_cast<std::ptrdiff_t>(1 + loop.carries() + loop.slices());
    for (const StackedSum& each : sums) {
      ValueId& term = outputs[loop.carries() + each.result];
      const SharedType type = to.value(term).type;
      const ValueId slice =
          to.add_input(fmt::format("sum {}", to.inputs().size()), InputKind::kLoop, type);
      place = std::next(order.insert(place, slice));
      Node add = graph_.node(each.add);
      add.inputs = {slice, term};
      term = to.node(to.add_node(std::move(add), {type})).outputs[0];
    }
    to.order_inputs(order);
    for (size_t i = 0; i < outputs.size(); ++i) to.add_output(body.outputs()[i].name, outputs[i]);
    return std::move(to);
  }
};

}  // namespace

Graph accumulate_in_loops(Graph lowered) { return LoopAccumulator(std::move(lowered)).run(); }

NodeFlags sums_of_collectives(const Graph& body) {
  const Consumers readers(body);
  ValueFlags is_output(body.values().size());
  for (const GraphOutput& output : body.outputs()) is_output[output.value] = true;
  const auto is_sum = [&](ValueId value) {
    return body.value(value).producer == kNone && readers[value].size() == 1 && !is_output[value];
  };
  const auto is_of_collective = [&](ValueId value) {
    NodeId producer = body.value(value).producer;
    while (producer != kNone && body.node(producer).op->op_class == OpClass::kView)
      producer = body.value(body.node(producer).inputs[0]).producer;
    return producer != kNone && is_collective(body.node(producer));
  };
  NodeFlags found;
  for (const Node& node : body.nodes())
    found.push_back(node.op->op_class == OpClass::kElementwise && node.phase == Phase::kBackward &&
                    std::ranges::all_of(node.outputs,
                                        [&](ValueId value) {
                                          return is_output[value] && readers[value].empty();
                                        }) &&
                    std::ranges::any_of(node.inputs, is_sum) &&
                    std::ranges::any_of(node.inputs, is_of_collective));
  return found;
}

}  // namespace tessera
