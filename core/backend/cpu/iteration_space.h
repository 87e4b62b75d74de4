// SPDX-License-Identifier: Apache-2.0
// The iteration space of an elementwise loop or copy: the fewest nested dimensions for all
// operands, with the stride of each operand in each dimension. And copies over such a space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/backend/cpu/thread_pool.h"
#include "core/graph/type.h"

namespace tessera {

// One per dimension, outermost first, in elements.
using Strides = std::vector<int64_t>;

struct IterationSpace {
  std::vector<int64_t> sizes;     // Outermost first; empty for a scalar.
  std::vector<Strides> operands;  // operands[i][d]: stride of operand i in dimension d.
  int64_t elements() const;
  // The offset in an operand of element `index`, in row-major order.
  int64_t offset(size_t operand, int64_t index) const;
};

std::vector<int64_t> sizes_of(const std::vector<Axis>& axes);

// Row-major strides of `type` along the axes of `space`, by name; 0 for axes that it lacks.
Strides strides_in(const Type& type, const std::vector<Axis>& space);

// Drops dimensions of size 1 and merges adjacent dimensions that are one for every operand.
IterationSpace collapse(std::vector<int64_t> sizes, std::vector<Strides> operands);

// Copies between strided arrays on all threads; transposes are blocked for the cache.
// space.operands[0] are the strides of the source, [1] those of the destination; `from` and `to`
// point at their first elements.
void strided_copy(const IterationSpace& space, int64_t element_bytes, const std::byte* from,
                  std::byte* to, ThreadPool& pool);

// Fills the destination, whose strides are space.operands[0], with the element `bits`.
void strided_fill(const IterationSpace& space, int64_t element_bytes, uint64_t bits, std::byte* to,
                  ThreadPool& pool);

}  // namespace tessera
