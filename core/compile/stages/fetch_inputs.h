// SPDX-License-Identifier: Apache-2.0
// Supports programs without a pipeline, such as sampling, in a run with a pipeline: its stages hold
// only their own weights, but such a program needs all of them on every device.
#pragma once

#include <cstdint>

#include "core/compile/stages/homes.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Returns the lowered graph of a device, in which inputs that are read and that only some stages
// hold (`homes`) come from the first of these stages, by an all-reduce over `stage` to which the
// others add zeros. On stages that do not hold them, the graph lacks these inputs and their
// updates.
Graph fetch_inputs(const Graph& lowered, const StageHomes& homes, const Mesh& mesh, int64_t device);

}  // namespace tessera
