// SPDX-License-Identifier: Apache-2.0
// Helpers of the op definitions under ops/: their gradients, decompositions and rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

using Tensors = std::vector<Tensor>;

// Cost of an op that only moves or makes values.
double no_flops(const Graph& graph, const Node& node);

// A cotangent of a broadcast operand, brought back to the operand: summed over the axes the operand
// lacks, axes in the operand's order. Summing over a split axis leaves it partial, as it may be.
Tensor match(const Tensor& cotangent, const Tensor& primal);

// "batch seq embed", as ops take axis names; and names from such text, where a slip is an Error at
// the operand's line.
std::string joined(const std::vector<std::string>& names);
std::vector<std::string> names_at(const Operand& operand, std::string_view text);

}  // namespace tessera
