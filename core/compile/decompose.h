// SPDX-License-Identifier: Apache-2.0
// Replaces composite ops (OpDef::decomposition) for which a device has no kernel by the graphs that
// define them. Linear in the graph that comes out.
#pragma once

#include <functional>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// Returns the graph without composite ops that have no kernel. Equal nodes of their decompositions
// are merged.
Graph decompose(Graph lowered, const std::function<bool(const OpDef&)>& has_kernel);

}  // namespace tessera
