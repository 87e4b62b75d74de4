// SPDX-License-Identifier: Apache-2.0
#include "core/passes/autodiff/activity.h"

#include <algorithm>

#include "core/graph/op.h"

namespace tessera {
std::vector<bool> depends_on(const Graph& graph, const std::vector<ValueId>& seeds, NodeId end) {
  std::vector<bool> active(graph.values().size(), false);
  for (const ValueId seed : seeds)
    active[static_cast<size_t>(seed)] = is_floating(graph.type(seed).dtype);
  for (NodeId id = 0; id < end; ++id) {
    const Node& node = graph.node(id);
    if (node.op->stops_gradient) continue;
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId v) { return active[static_cast<size_t>(v)]; });
    if (!any) continue;
    for (const ValueId value : node.outputs)
      if (is_floating(graph.type(value).dtype)) active[static_cast<size_t>(value)] = true;
  }
  return active;
}

std::vector<bool> reached_from(const Graph& graph, const std::vector<ValueId>& seeds,
                               const std::vector<bool>& active, NodeId end) {
  std::vector<bool> reached(graph.values().size(), false);
  for (const ValueId seed : seeds)
    reached[static_cast<size_t>(seed)] = active[static_cast<size_t>(seed)];
  for (NodeId id = end - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    if (node.op->stops_gradient) continue;
    const bool any = std::any_of(node.outputs.begin(), node.outputs.end(),
                                 [&](ValueId v) { return reached[static_cast<size_t>(v)]; });
    if (!any) continue;
    for (const ValueId value : node.inputs)
      if (active[static_cast<size_t>(value)]) reached[static_cast<size_t>(value)] = true;
  }
  return reached;
}

}  // namespace tessera
