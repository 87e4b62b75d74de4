// SPDX-License-Identifier: Apache-2.0
// Adds nodes for stacks of layers and for stages, on behalf of a node of the model.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/layer_pieces.h"
#include "core/graph/op.h"

namespace tessera {

// Stages, ascending.
using StageList = std::vector<int64_t>;

class AddedNodes {
 public:
  // Appends to `graph`. The nodes have the source line, the layer path and the phase of `like`.
  AddedNodes(Graph& graph, const Node& like) : graph_(graph), like_(like) {}

  ValueId add(const Op& op, std::vector<ValueId> inputs, Attributes attributes, const Type& type);
  ValueId zeros(const Type& type);

  // For values with the axis `layers`. Each returns its operand if nothing needs to be done.
  ValueId rows(ValueId stack, int64_t begin, int64_t count);  // Rows [begin, begin + count).
  ValueId padded(ValueId stack, int64_t rows);                // Appends zeros up to this many rows.
  ValueId joined(std::vector<ValueId> parts);

  // Returns the sum over these stages, of which the device's is one; over all if the list is empty.
  ValueId sum_over_stages(ValueId value, const StageList& stages = {});

 private:
  ValueId with_rows(const Op& op, std::vector<ValueId> inputs, int64_t rows, Attributes attributes);

  Graph& graph_;
  const Node& like_;
};

// The following convert the order of the rows of a stack whose layers are in pieces. Concatenated
// shards of all stages have the rows of each stage together, with padding; the stack itself has
// them in the order of the model.

// Appends nodes that put the stages() * rows() rows of all shards along the axis `layers` into the
// order of the model, without padding. `like` gives the nodes their line, path and phase.
ValueId in_layer_order(Graph& graph, const Node& like, ValueId shards, const LayerPieces& pieces);

// Returns this stage's rows of the stack, padded by zeros.
ValueId rows_of_stage(AddedNodes& nodes, ValueId stack, const LayerPieces& pieces, int64_t stage);

// Returns the concatenated rows of all stages: the inverse of in_layer_order().
ValueId in_stage_order(Graph& graph, const Node& like, ValueId stack, const LayerPieces& pieces);

}  // namespace tessera
