// SPDX-License-Identifier: Apache-2.0
// The inside of autodiff: the reverse walk over one graph, and what it does at a loop. Passes call
// gradients() (autodiff.h).
#pragma once

#include <vector>

#include "core/graph/graph.h"
#include "core/passes/autodiff/cotangents.h"

namespace tessera {

// Walks nodes [0, end) of the traced graph backwards, tracing each node's vjp and adding to the
// cotangents of its `active` operands.
void trace_backward(Graph& graph, NodeId end, const std::vector<bool>& active,
                    Cotangents& cotangents);

// The same for the `repeat` node `id`: it comes to save what its body's backward pass reads, one
// stacked output a value, and a reversed loop is traced that runs that pass.
void trace_repeat_backward(Graph& graph, NodeId id, const std::vector<bool>& active,
                           Cotangents& cotangents);

}  // namespace tessera
