// SPDX-License-Identifier: Apache-2.0
#include "core/passes/spmd/layer_order.h"

#include <string>
#include <utility>
#include <vector>

#include "core/ops/layout.h"

namespace tessera {
namespace {

class RowNodes {
 public:
  RowNodes(Graph& graph, const Node& like) : graph_(graph), like_(like) {}

  ValueId slice(ValueId from, int64_t begin, int64_t rows) {
    return add(kSliceOp, {from}, rows, {{"begin", begin}, {"end", begin + rows}});
  }
  ValueId pad(ValueId from, int64_t zeros) {
    const int64_t rows = graph_.type(from).axis(kLayersAxis).size;
    return add(kPadOp, {from}, rows + zeros, {{"before", int64_t{0}}, {"after", zeros}});
  }
  ValueId concat(std::vector<ValueId> parts) {
    int64_t rows = 0;
    for (const ValueId part : parts) rows += graph_.type(part).axis(kLayersAxis).size;
    return add(kConcatOp, std::move(parts), rows, {});
  }

 private:
  ValueId add(const OpDef& op, std::vector<ValueId> inputs, int64_t rows, Attributes attributes) {
    Type type = graph_.type(inputs[0]);
    type.axes[static_cast<size_t>(type.find(kLayersAxis))].size = rows;
    Node node = like_;
    node.op = &op;
    node.inputs = std::move(inputs);
    node.attributes = {{"axis", std::string(kLayersAxis)}};
    for (const auto& [name, value] : attributes.entries()) node.attributes.set(name, value);
    return graph_.node(graph_.add_node(std::move(node), {type})).outputs[0];
  }

  Graph& graph_;
  const Node& like_;
};

}  // namespace

ValueId in_layer_order(Graph& graph, const Node& like, ValueId shards, const LayerPieces& pieces) {
  RowNodes nodes(graph, like);
  std::vector<ValueId> parts;
  for (int64_t piece = 0; piece < pieces.pieces(); ++piece) {
    const int64_t shard = pieces.stage_of(piece) * pieces.rows();
    parts.push_back(nodes.slice(shards, shard + pieces.first_row(piece), pieces.layers(piece)));
  }
  return nodes.concat(std::move(parts));
}

ValueId in_stage_order(Graph& graph, const Node& like, ValueId stack, const LayerPieces& pieces) {
  RowNodes nodes(graph, like);
  std::vector<ValueId> parts;
  for (int64_t stage = 0; stage < pieces.stages(); ++stage) {
    for (int64_t chunk = 0; chunk < pieces.chunks(); ++chunk) {
      const int64_t piece = pieces.piece(stage, chunk);
      parts.push_back(nodes.slice(stack, pieces.first_layer(piece), pieces.layers(piece)));
    }
    const int64_t padding = pieces.rows() - pieces.layers_of_stage(stage);
    if (padding > 0) parts.back() = nodes.pad(parts.back(), padding);
  }
  return nodes.concat(std::move(parts));
}

}  // namespace tessera
