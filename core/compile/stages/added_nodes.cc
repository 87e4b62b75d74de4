// SPDX-License-Identifier: Apache-2.0
#include "core/compile/stages/added_nodes.h"

#include <string>
#include <utility>

#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

int64_t rows_of(const Graph& graph, ValueId stack) {
  return graph.type(stack).axis(kLayersAxis).size;
}

}  // namespace

ValueId AddedNodes::add(const Op& op, std::vector<ValueId> inputs, Attributes attributes,
                        const Type& type) {
  Node node;
  node.op = &op;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  node.site = like_.site;
  node.path = like_.path;
  node.phase = like_.phase;
  return graph_.node(graph_.add_node(std::move(node), {type})).outputs[0];
}

ValueId AddedNodes::zeros(const Type& type) {
  return add(kConstantOp, {}, {{key::kValue, 0.0}, {key::kType, type}}, type);
}

ValueId AddedNodes::with_rows(const Op& op, std::vector<ValueId> inputs, int64_t rows,
                              Attributes attributes) {
  Type type = graph_.type(inputs[0]);
  type.axes[static_cast<size_t>(type.find(kLayersAxis))].size = rows;
  attributes.set(key::kAxis, kLayersAxis);
  return add(op, std::move(inputs), std::move(attributes), type);
}

ValueId AddedNodes::rows(ValueId stack, int64_t begin, int64_t count) {
  if (count == rows_of(graph_, stack)) return stack;
  return with_rows(kSliceOp, {stack}, count, {{key::kBegin, begin}, {key::kEnd, begin + count}});
}

ValueId AddedNodes::padded(ValueId stack, int64_t rows) {
  const int64_t missing = rows - rows_of(graph_, stack);
  if (missing == 0) return stack;
  return with_rows(kPadOp, {stack}, rows, {{key::kBefore, 0}, {key::kAfter, missing}});
}

ValueId AddedNodes::joined(std::vector<ValueId> parts) {
  if (parts.size() == 1) return parts[0];
  int64_t rows = 0;
  for (const ValueId part : parts) rows += rows_of(graph_, part);
  return with_rows(kConcatOp, std::move(parts), rows, {});
}

ValueId AddedNodes::sum_over_stages(ValueId value, const StageList& stages) {
  Attributes attributes = {{key::kMeshAxes, std::vector{std::string(kStageAxis)}},
                           {key::kReduction, "sum"}};
  if (!stages.empty()) attributes.set(key::kStages, stages);
  const Type type = graph_.type(value);
  return add(kAllReduceOp, {value}, std::move(attributes), type);
}

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
