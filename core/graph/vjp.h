// SPDX-License-Identifier: Apache-2.0
// Helpers of gradients and plain definitions under ops/.
#pragma once

#include <string>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

using Tensors = std::vector<Tensor>;

// A cotangent of a broadcast operand, brought back to the operand: summed over the axes the operand
// lacks, axes in the operand's order. Summing over a split axis leaves it partial, as it may be.
Tensor match(const Tensor& cotangent, const Tensor& primal);

// "batch seq embed", as ops take axis names.
std::string joined(const std::vector<std::string>& names);

}  // namespace tessera
