// SPDX-License-Identifier: Apache-2.0
// The iteration space of an elementwise loop or copy: the fewest nested dimensions that suit all
// operands, with the stride of each operand in each dimension.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/graph/type.h"

namespace tessera {

// One per dimension, outermost first, in elements.
using Strides = std::vector<int64_t>;

struct IterationSpace {
  std::vector<int64_t> sizes;     // Outermost first; empty for a scalar.
  std::vector<Strides> operands;  // operands[i][d]: stride of operand i in dimension d.
  int64_t elements() const;
  // Returns the offset in an operand of element `index`, in row-major order.
  int64_t offset(size_t operand, int64_t index) const;
};

std::vector<int64_t> sizes_of(const std::vector<Axis>& axes);

// Returns row-major strides of `type` along the axes of `space`, by name; 0 for axes that it lacks.
Strides strides_in(const Type& type, const std::vector<Axis>& space);

// The shape of an array as [outer size inner], where `size` is that of one axis.
struct AxisShape {
  AxisShape(const Type& type, std::string_view axis);
  int64_t outer = 1, size = 1, inner = 1;
};

// Drops dimensions of size 1 and merges adjacent dimensions that are one for every operand.
IterationSpace collapse(std::vector<int64_t> sizes, std::vector<Strides> operands);

}  // namespace tessera
