// SPDX-License-Identifier: Apache-2.0
// Lowering of a global graph to the program of one device (SPMD, as GSPMD: Xu et al., 2021), and
// what a traced graph is checked for and changed to before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/compile/spmd/reshard_plan.h"
#include "core/compile/stages/stage_graph.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/schedules/table.h"

namespace tessera {

// Lowers a graph. Types become local types. A reshard becomes the steps of its cheapest plan:
// collectives (core/ops/reshard.h), slices, zero-pads and masks with the source line, path and name
// of the reshard. Ops whose result depends on the position of a shard get the attributes `origin`
// and `extent`. Save marks, stop_gradients and casts to the same dtype are removed. Dead nodes are
// removed and equal nodes merged, except remat clones.
//
// The graphs of all devices have the same nodes in the same order with the same types. They differ
// only in attributes (index, group, begin, before, after, keep, origin, from, to).
Graph lower(const Graph& graph, const Mesh& mesh, int64_t device = 0, const LinkCosts& costs = {});

// Lowers for a pipeline: the graphs of the devices of one stage have the same nodes, those of
// different stages do not (core/compile/stages/stage_graph.h). Like lower() if the graph has no
// layers to divide, or the mesh one stage.
StageGraph lower_stage(const Graph& graph, const Mesh& mesh, const PipelineTable& table,
                       int64_t device = 0, const LinkCosts& costs = {});

// Returns warnings "<source line>: … [in <path>]" in the order of the graph, without repetitions
// for other layers of a stack.
std::vector<std::string> layout_lint(const Graph& traced, const Mesh& mesh);

// Returns the graph without partial sums. A value that was partial over a mesh axis is whole, and
// replicated along it. Partial maxima stay: they do not depend on the order. So do sums of one term
// and zeros, such as a lookup in a split table, up to the next reshard.
Graph with_whole_sums(const Graph& traced, const Mesh& mesh);

}  // namespace tessera
