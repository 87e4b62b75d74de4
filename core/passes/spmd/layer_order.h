// SPDX-License-Identifier: Apache-2.0
// The order of the rows of a stack whose layers are in pieces (LayerPieces). Shards of all stages
// one behind the other have the rows of each stage together, with padding; the stack itself has
// them in the order of the model.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/layer_pieces.h"

namespace tessera {

// Appends nodes that put the stages() * rows() rows of all shards along the axis `layers` into the
// order of the model, without padding. `like` gives the nodes their line, path and phase.
ValueId in_layer_order(Graph& graph, const Node& like, ValueId shards, const LayerPieces& pieces);

// The inverse: each stage's rows together, padded by zeros.
ValueId in_stage_order(Graph& graph, const Node& like, ValueId stack, const LayerPieces& pieces);

}  // namespace tessera
