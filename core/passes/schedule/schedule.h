// SPDX-License-Identifier: Apache-2.0
// The order in which nodes run. The traced order is kept but for what memory asks: updates run as
// soon as they can, so that gradients die early; what only copies or converts what stays anyway
// (weights, constants) runs just before it is first read.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

Graph schedule(const Graph& lowered);

}  // namespace tessera
