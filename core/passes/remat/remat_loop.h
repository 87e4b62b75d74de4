// SPDX-License-Identifier: Apache-2.0
// Rematerialization of loops, per iteration.
#pragma once

#include "core/graph/graph.h"
#include "core/passes/remat/remat.h"

namespace tessera {

// For each backward loop of `graph` that reads what a forward loop saved: only what the policy
// keeps is saved, and the backward body computes the rest again. Bodies' own loops are not touched.
Graph rematerialize_loops(const Graph& graph, const RematPolicy& policy);

}  // namespace tessera
