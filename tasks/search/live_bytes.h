// SPDX-License-Identifier: Apache-2.0
// A lower bound of the memory that the values of a program need, before its memory is planned.
#pragma once

#include <cstdint>
#include <functional>

#include "core/graph/graph.h"

namespace tessera {

// Which nodes' results count; unset: all.
using CountsNode = std::function<bool(const Graph& graph, const Node& node)>;

// The bytes of values that are in memory at one time, at least, beside the inputs: at a moment
// between two nodes all values that an earlier node made and a later one reads. Views, and what may
// share the memory of another value, do not count. The graph is that of one device. Of a pipeline:
// what tasks made for later ones (of a stage: activations of the microbatches on their way).
int64_t live_bytes(const Graph& graph, const CountsNode& counts = {});

}  // namespace tessera
