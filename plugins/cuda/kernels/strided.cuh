// SPDX-License-Identifier: Apache-2.0
// Offsets in strided arrays.
#pragma once

#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

struct Division {
  uint64_t quotient, remainder;
};

__device__ inline Division divide(uint64_t dividend, const Divider& by) {
  if (dividend >> 31) {
    const uint64_t quotient =
        (__umul64hi(dividend, by.wide_multiplier) + dividend) >> by.wide_shift;
    return {quotient, dividend - quotient * by.divisor};
  }
  const auto low = static_cast<uint32_t>(dividend);
  const uint32_t quotient = (__umulhi(low, by.multiplier) + low) >> by.shift;
  return {quotient, low - quotient * static_cast<uint32_t>(by.divisor)};
}

// Of the numbers begin, begin + 2^shift, …: those below `end`. A loop over this count can be
// unrolled without a division.
__device__ inline int64_t count_steps(int64_t begin, int64_t end, int shift) {
  return (end - begin + (int64_t{1} << shift) - 1) >> shift;
}

// Adds the offsets of element `index` of the space to `at`.
template <int operands>
__device__ inline void add_offsets(const StridedSpace<operands>& space, uint64_t index,
                                   int64_t (&at)[operands]) {
#pragma unroll 1
  for (int d = space.rank - 1; d > 0; --d) {
    const Division parts = divide(index, space.sizes[d]);
#pragma unroll
    for (int i = 0; i < operands; ++i)
      at[i] += static_cast<int64_t>(parts.remainder) * space.strides[i][d];
    index = parts.quotient;
  }
#pragma unroll
  for (int i = 0; i < operands; ++i) at[i] += static_cast<int64_t>(index) * space.strides[i][0];
}

__device__ inline int64_t offset_in(const StridedSpace<1>& space, uint64_t index) {
  int64_t at[1] = {0};
  add_offsets(space, index, at);
  return at[0];
}

}  // namespace tessera::cuda
