// SPDX-License-Identifier: Apache-2.0
// Pipeline parallelism: the graph of one stage. The loop over microbatches becomes a `pipeline`
// node (core/ops/pipeline.h), which runs the stage's tasks and transfers in the order of a table.
#pragma once

#include <cstdint>

#include "core/compile/stages/homes.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/schedules/table.h"

namespace tessera {

// Returns whether a graph has a loop over microbatches with layers that are stacked over `stage`.
bool can_pipeline(const Graph& localized);

struct StageGraph {
  Graph graph;
  StageHomes homes;
};

// Returns the graph of the devices at `stage`, from one that is the same for all devices and has
// local types (lower.h).
//
// Transfers between stages are `send` and `receive` (core/ops/send.h). All stages process them in
// one order, which follows the ticks of the table, so they never wait for each other in a circle.
//
// Weights that are not stacked, such as an embedding, are only on the stages whose tasks use them,
// with their optimizer state and their updates. Values that other stages need of them, such as a
// sum of squares for the norm of all gradients, come by an all-reduce over `stage`.
//
// Tasks of the table that the graph lacks, such as backward passes in an evaluation, are left out.
// Error if the model has no single stack of layers, or one that the table's pieces do not divide.
StageGraph stage_graph(const Graph& localized, const Mesh& mesh, const PipelineTable& table,
                       int64_t stage);

}  // namespace tessera
