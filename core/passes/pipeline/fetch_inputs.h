// SPDX-License-Identifier: Apache-2.0
// Programs without a pipeline, such as one that samples, beside a pipeline's: its stages hold only
// their own weights, of which such a program needs all on every device.
#pragma once

#include <cstdint>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/passes/pipeline/homes.h"

namespace tessera {

// The lowered graph of a device, where inputs that only some stages hold (`homes`) and that are
// read come from the first of these stages, by an all-reduce over `stage` to which the others add
// zeros. On stages that do not hold them, the graph lacks these inputs and their updates.
Graph fetch_inputs(const Graph& lowered, const StageHomes& homes, const Mesh& mesh, int64_t device);

}  // namespace tessera
