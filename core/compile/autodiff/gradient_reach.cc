// SPDX-License-Identifier: Apache-2.0
// Finds the inputs of a traced graph that can get a gradient that is not zero.
#include <algorithm>
#include <vector>

#include "core/compile/autodiff/autodiff.h"
#include "core/ops/repeat.h"

namespace tessera {
namespace {

ValueFlags reached_from(const Graph& graph, const std::vector<ValueId>& ends);

// Returns, for each operand of the loop, whether a flagged output depends on it.
std::vector<bool> reached_operands(const Loop& loop, const ValueFlags& outer) {
  std::vector<bool> is_end(loop.outputs());
  for (size_t i = 0; i < loop.outputs(); ++i) is_end[i] = outer[loop.output(i)];
  std::vector<bool> reached(loop.operands());
  for (bool grew = true; grew;) {
    grew = false;
    std::vector<ValueId> ends;
    for (size_t i = 0; i < loop.outputs(); ++i)
      if (is_end[i]) ends.push_back(loop.output_in(i));
    const ValueFlags inner = reached_from(loop.body(), ends);
    for (size_t i = 0; i < loop.operands(); ++i) {
      reached[i] = inner[loop.operand_in(i)];
      // The value of a carry in one iteration is its output of the iteration before.
      if (i < loop.carries() && reached[i] && !is_end[i]) is_end[i] = grew = true;
    }
  }
  return reached;
}

ValueFlags reached_from(const Graph& graph, const std::vector<ValueId>& ends) {
  ValueFlags flags(graph.values().size());
  for (const ValueId end : ends) flags[end] = true;
  for (const NodeId id : IdRange(graph.nodes().end_id()).reversed()) {
    const Node& node = graph.node(id);
    const bool is_reached =
        std::ranges::any_of(node.outputs, [&](ValueId value) -> bool { return flags[value]; });
    if (!is_reached || node.op->stops_gradient) continue;
    const std::vector<bool> operands = is_repeat(node)
                                           ? reached_operands(Loop(node), flags)
                                           : std::vector<bool>(node.inputs.size(), true);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (operands[i] && is_floating(graph.type(node.inputs[i]).dtype))
        flags[node.inputs[i]] = true;
  }
  return flags;
}

}  // namespace

ValueFlags reached_by_gradient(const Graph& graph, ValueId loss) {
  return reached_from(graph, {loss});
}

}  // namespace tessera
