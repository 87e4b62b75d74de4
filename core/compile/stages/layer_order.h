// SPDX-License-Identifier: Apache-2.0
// Converts the order of the rows of a stack whose layers are in pieces (LayerPieces). Concatenated
// shards of all stages have the rows of each stage together, with padding; the stack itself has
// them in the order of the model.
#pragma once

#include "core/compile/stages/added_nodes.h"
#include "core/graph/graph.h"
#include "core/graph/layer_pieces.h"

namespace tessera {

// Appends nodes that put the stages() * rows() rows of all shards along the axis `layers` into the
// order of the model, without padding. `like` gives the nodes their line, path and phase.
ValueId in_layer_order(Graph& graph, const Node& like, ValueId shards, const LayerPieces& pieces);

// Returns this stage's rows of the stack, padded by zeros.
ValueId rows_of_stage(AddedNodes& nodes, ValueId stack, const LayerPieces& pieces, int64_t stage);

// Returns the concatenated rows of all stages: the inverse of in_layer_order().
ValueId in_stage_order(Graph& graph, const Node& like, ValueId stack, const LayerPieces& pieces);

}  // namespace tessera
