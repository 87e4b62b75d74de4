// SPDX-License-Identifier: Apache-2.0
// Finds the inputs of a traced graph that can get a gradient that is not zero.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Returns the values on which `loss` depends through ops that have a gradient. A loop is followed
// through its body, repeatedly while more carries are reached. Time is linear in the nodes for each
// carry.
ValueFlags reached_by_gradient(const Graph& graph, ValueId loss);

}  // namespace tessera
