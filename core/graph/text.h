// SPDX-License-Identifier: Apache-2.0
// A graph as text to read: inputs, a line a node under its layer path, outputs; bodies indented.
#pragma once

#include <string>

#include "core/graph/graph.h"

namespace tessera {

std::string graph_text(const Graph& graph);

// Eight digits that tell graphs of other text apart, but for chance.
std::string graph_hash(const Graph& graph);

}  // namespace tessera
