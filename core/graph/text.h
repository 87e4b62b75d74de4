// SPDX-License-Identifier: Apache-2.0
// A graph as text: a listing to read, its hash, and DOT for a drawing.
#pragma once

#include <string>

#include "core/graph/graph.h"

namespace tessera {

// Lists inputs, one line per node below its layer path, and outputs; bodies are indented.
std::string graph_text(const Graph& graph);

// Returns eight hexadecimal digits, except by chance different for graphs with different text.
std::string graph_hash(const Graph& graph);

// Writes Graphviz's DOT: a box per node within clusters for its phase and layer path, with output
// types and the source line as tooltip. Pending sums and maxima are dashed red edges.
std::string graph_dot(const Graph& graph);

}  // namespace tessera
