// SPDX-License-Identifier: Apache-2.0
// The reference implementation that tests compare with: runs a graph on whole arrays in double
// precision, one simple loop per op. Composite ops run their decompositions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/devices/reference/array.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

// Elements of each graph input by name, row-major.
using ReferenceInputs = std::map<std::string, std::vector<double>>;

// Returns every output by name, including updates. Floating-point arithmetic is in double for all
// dtypes (a cast to bf16 does not round); integers and bools are exact; random ops use the formulas
// of core/base/random.h. Runs traced graphs, on any mesh, and lowered and fused graphs.
std::map<std::string, ReferenceArray> evaluate(const Graph& graph, const ReferenceInputs& inputs,
                                               const Mesh& mesh = {});

// Returns the results of one node of a graph.
std::vector<ReferenceArray> evaluate_node(const Graph& graph, const Node& node,
                                          const std::vector<const ReferenceArray*>& operands,
                                          const Mesh& mesh = {});

}  // namespace tessera
