// SPDX-License-Identifier: Apache-2.0
// A lint for layouts that are correct but cost more than necessary: a weight whose splits are in an
// order that must be permuted before use, and a value that every device computes whole and then
// slices. It reads the traced graph.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Returns warnings "<source line>: … [in <path>]" in the order of the graph, without repetitions
// for other layers of a stack.
std::vector<std::string> layout_lint(const Graph& traced, const Mesh& mesh);

}  // namespace tessera
