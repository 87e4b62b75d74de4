// SPDX-License-Identifier: Apache-2.0
#include "core/compile/stages/layer_order.h"

#include <utility>
#include <vector>

#include "core/compile/stages/added_nodes.h"

namespace tessera {
ValueId in_layer_order(Graph& graph, const Node& like, ValueId shards, const LayerPieces& pieces) {
  AddedNodes nodes(graph, like);
  std::vector<ValueId> parts;
  for (int64_t piece = 0; piece < pieces.pieces(); ++piece) {
    const int64_t shard = pieces.stage_of(piece) * pieces.rows();
    parts.push_back(nodes.rows(shards, shard + pieces.first_row(piece), pieces.layers(piece)));
  }
  return nodes.joined(std::move(parts));
}

ValueId rows_of_stage(AddedNodes& nodes, ValueId stack, const LayerPieces& pieces, int64_t stage) {
  std::vector<ValueId> parts;
  for (int64_t chunk = 0; chunk < pieces.chunks(); ++chunk) {
    const int64_t piece = pieces.piece(stage, chunk);
    parts.push_back(nodes.rows(stack, pieces.first_layer(piece), pieces.layers(piece)));
  }
  return nodes.padded(nodes.joined(std::move(parts)), pieces.rows());
}

ValueId in_stage_order(Graph& graph, const Node& like, ValueId stack, const LayerPieces& pieces) {
  AddedNodes nodes(graph, like);
  std::vector<ValueId> parts;
  for (int64_t stage = 0; stage < pieces.stages(); ++stage)
    parts.push_back(rows_of_stage(nodes, stack, pieces, stage));
  return nodes.joined(std::move(parts));
}

}  // namespace tessera
