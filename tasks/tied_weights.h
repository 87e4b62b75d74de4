// SPDX-License-Identifier: Apache-2.0
// Weights that a model reads both before and after its stack of layers, such as an embedding that
// is also the table of the softmax: in a pipeline the first and the last stage hold them.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// The names of these weights in a traced training step that loops over microbatches.
std::vector<std::string> tied_weights(const Graph& traced);

// A warning for each of them, with its cost: the bytes of its gradient on a device, which the two
// stages add up in each step.
std::vector<std::string> warnings_of_tied_weights(const Graph& traced, const Mesh& mesh);

}  // namespace tessera
