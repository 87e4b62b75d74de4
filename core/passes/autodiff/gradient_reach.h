// SPDX-License-Identifier: Apache-2.0
// Which inputs of a traced graph can get a gradient that is not zero.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// The values on which `loss` depends through ops that have a gradient. A loop is followed through
// its body, carries until nothing more is reached. Time is linear in the nodes for each carry.
ValueFlags reached_by_gradient(const Graph& graph, ValueId loss);

}  // namespace tessera
