// SPDX-License-Identifier: Apache-2.0
// A graph as text: a listing to read, its hash, and DOT for a drawing.
#pragma once

#include <string>

#include "core/graph/graph.h"

namespace tessera {

// Lists inputs, one line per node below its layer path, and outputs; bodies are indented.
std::string graph_text(const Graph& graph);

// Returns eight hexadecimal digits that differ between graphs with different text, except by
// chance.
std::string graph_hash(const Graph& graph);

// Writes Graphviz's DOT: a box per node within clusters for its phase and layer path, with the
// types of its outputs and its source line as tooltip. Pending sums and maxima are dashed red
// edges.
std::string graph_dot(const Graph& graph);

}  // namespace tessera
