// SPDX-License-Identifier: Apache-2.0
// Groups elementwise nodes of one iteration space into `fused` nodes, whose body graph a backend
// runs as one loop without storing what stays inside.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

Graph fuse(const Graph& lowered);

}  // namespace tessera
