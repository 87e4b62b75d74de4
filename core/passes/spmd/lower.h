// SPDX-License-Identifier: Apache-2.0
// From global types to the program one device runs: local types, reshards as collectives.
#pragma once

#include <cstdint>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/passes/spmd/reshard_plan.h"

namespace tessera {

// Every type becomes its local type, and every reshard the steps of its cheapest plan: collectives
// (core/ops/collective.h), slices, zero-pads and masks, each with the line, path and name of
// the reshard it serves. Ops whose result depends on where a shard lies get `origin` and `extent`.
// Save marks, stop_gradients and casts to the dtype at hand vanish. Dead nodes are dropped and
// equal pure nodes merged (remat clones excepted).
//
// The graphs of all devices have the same nodes in the same order with the same types; they differ
// in attributes alone (index, group, begin, before, after, keep, origin, from, to).
Graph lower(const Graph& graph, const Mesh& mesh, int64_t device = 0, const LinkCosts& costs = {});

}  // namespace tessera
