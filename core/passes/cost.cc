// SPDX-License-Identifier: Apache-2.0
#include "core/passes/cost.h"

#include "core/graph/op.h"
#include "core/passes/loop.h"

namespace tessera {

double node_flops(const Graph& graph, const Node& node) {
  if (is_repeat(node)) {
    const Loop loop(node);
    return static_cast<double>(loop.count()) * graph_flops(loop.body());
  }
  if (!node.bodies.empty()) return graph_flops(*node.bodies[0]);
  if (node.op->flops != nullptr) return node.op->flops(graph, node);
  double elements = 0;
  for (const ValueId value : node.outputs)
    elements += static_cast<double>(graph.type(value).elements());
  return elements;
}

double graph_flops(const Graph& graph) {
  double total = 0;
  for (const Node& node : graph.nodes()) total += node_flops(graph, node);
  return total;
}

}  // namespace tessera
