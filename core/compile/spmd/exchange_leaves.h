// SPDX-License-Identifier: Apache-2.0
// Lowering of add_leaves (core/ops/leaves.h). Where a ring would add partial sums on their way, each
// device gets the terms of all leaves for its part of the sum and adds them in the order of the
// leaves: an all-to-all along the mesh axes that split the sum, an all-gather along the others.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Appends to `local`, a graph of one device, the nodes for `node`, whose sum has the global type
// `type`. `sum` and `term` are values of `local`. Returns the new sum.
ValueId exchange_leaves(Graph& local, const Node& node, const Type& type, const Mesh& mesh,
                        ValueId sum, ValueId term);

}  // namespace tessera
