// SPDX-License-Identifier: Apache-2.0
#include "core/compile/dependence.h"

namespace tessera {

NodeFlags ancestors(const Graph& graph, const std::vector<ValueId>& values) {
  NodeFlags found(graph.nodes().size());
  const auto add = [&](ValueId value) {
    if (const NodeId producer = graph.value(value).producer; producer != kNone)
      found[producer] = true;
  };
  for (const ValueId value : values) add(value);
  for (const NodeId id : graph.nodes().ids().reversed())
    if (found[id])
      for (const ValueId value : graph.node(id).inputs) add(value);
  return found;
}

}  // namespace tessera
