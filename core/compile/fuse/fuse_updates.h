// SPDX-License-Identifier: Apache-2.0
// Multi-tensor updates: the adam_update nodes of parameters become `fused_updates` nodes, which a
// backend runs as one launch. Only updates that wait for all gradients anyway, because the clip
// scale or the decision to skip the step depends on them: others run as soon as they can, which
// frees their gradient. Before fuse(). Linear in the graph.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// The body of a `fused_updates` node has adam_update nodes with the same scalar operands, moments
// of the same dtypes and equal attributes except weight_decay and those of their noise, each
// followed by the cast of the new parameter to bf16 if there is one. Its results are all of theirs
// in the same order.
Graph fuse_updates(Graph lowered);

}  // namespace tessera
