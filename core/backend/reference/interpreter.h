// SPDX-License-Identifier: Apache-2.0
// The reference interpreter, the oracle of tests: runs a graph on global arrays in double
// precision, one simple loop per op. Composite ops run as their decompositions. Not for training.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/reference/array.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// The elements of each graph input by name, row-major.
using ReferenceInputs = std::map<std::string, std::vector<double>>;

// All outputs by name, with updates. Floating arithmetic is in double for every dtype (a cast to
// bf16 does not round); integers and bools are exact; random ops use the formulas of
// core/base/random.h. Accepts traced graphs on any mesh, lowered graphs and fused graphs.
std::map<std::string, ReferenceArray> evaluate(const Graph& graph, const ReferenceInputs& inputs,
                                               const Mesh& mesh = {});

// The results of one node of a graph.
std::vector<ReferenceArray> evaluate_node(const Graph& graph, const Node& node,
                                          const std::vector<const ReferenceArray*>& operands,
                                          const Mesh& mesh = {});

}  // namespace tessera
