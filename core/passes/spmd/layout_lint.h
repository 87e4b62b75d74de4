// SPDX-License-Identifier: Apache-2.0
// Layouts that are right but cost more than they need: a weight whose splits lie in an order that
// has to be permuted before use, and a value that every rank computes whole and then slices. Found
// in the traced graph; nothing is changed.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// One line each, "<source line>: … [in <path>]", in the order of the graph; lines that repeat for
// other layers are left out.
std::vector<std::string> layout_lint(const Graph& traced, const Mesh& mesh);

}  // namespace tessera
