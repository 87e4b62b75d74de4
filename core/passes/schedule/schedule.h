// SPDX-License-Identifier: Apache-2.0
// The order of nodes: the traced order with two changes that save memory. Updates run as soon as
// they can, so that gradients are freed early; inexpensive nodes that read only persistent values
// (casts of weights, constants) run just before their first reader.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

Graph schedule(const Graph& lowered);

}  // namespace tessera
