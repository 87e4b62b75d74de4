// SPDX-License-Identifier: Apache-2.0
// Forward values that the backward pass had better compute again than read back, whatever the remat
// policy: elementwise results whose operands it reads anyway, wanted by elementwise nodes only. A
// fused loop then makes them on the way, with the same bits, and they need not be kept.
#pragma once

#include <functional>
#include <vector>

#include "core/graph/graph.h"

namespace tessera {

// What separates the two passes in a graph that holds both.
struct PassesOfGraph {
  std::function<bool(NodeId)> is_forward, is_backward;
  std::function<bool(ValueId)> stays;  // Of a graph input: it is there in the backward pass.
};

// By value. What is marked by save_for_backward, or is an output, is not among them.
std::vector<bool> cheap_to_recompute(const Graph& graph, const PassesOfGraph& passes);

}  // namespace tessera
