// SPDX-License-Identifier: Apache-2.0
// Recognises the ops that lowering makes of a stack of layers that is split over `stage`.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Return whether a node of a localised graph gathers a stack of layers over `stage`, or keeps this
// stage's part of one.
bool is_stage_gather(const Node& node);
bool is_stage_slice(const Node& node);

}  // namespace tessera
