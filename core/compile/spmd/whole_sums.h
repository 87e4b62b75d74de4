// SPDX-License-Identifier: Apache-2.0
// Makes every sum on one device: a sum that is divided between devices is added in an order that
// depends on the mesh. Where a contraction or a reduction over a split axis would give a partial
// sum, its operands are brought together first: split along an axis of the result, so that no
// device repeats the work of another, or replicated if no such axis can be divided. Part of
// numerics=mesh_invariant.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Returns the graph without partial sums. A value that was partial over a mesh axis is whole, and
// replicated along it. Partial maxima stay: they do not depend on the order. So do sums of one term
// and zeros, such as a lookup in a split table, up to the next reshard.
Graph with_whole_sums(const Graph& traced, const Mesh& mesh);

}  // namespace tessera
