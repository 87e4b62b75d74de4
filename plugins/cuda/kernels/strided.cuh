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

// How many of the numbers begin, begin + 2^shift, … are below `end`. A loop over this count can be
// unrolled without a division.
__device__ inline int64_t count_steps(int64_t begin, int64_t end, int shift) {
  return (end - begin + (int64_t{1} << shift) - 1) >> shift;
}

// The offsets of some elements of the space in each operand. Computed together, so that the code of
// their divisions exists once.
template <int operands, int batch>
__device__ inline void offsets_in(const StridedSpace<operands>& space, uint64_t (&indices)[batch],
                                  int64_t (&offsets)[operands][batch]) {
#pragma unroll
  for (int i = 0; i < operands; ++i)
#pragma unroll
    for (int b = 0; b < batch; ++b) offsets[i][b] = 0;
#pragma unroll 1
  for (int d = space.rank - 1; d >= 0; --d) {
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const Division parts = divide(indices[b], space.sizes[d]);
#pragma unroll
      for (int i = 0; i < operands; ++i)
        offsets[i][b] += static_cast<int64_t>(parts.remainder) * space.strides[i][d];
      indices[b] = parts.quotient;
    }
  }
}

__device__ inline int64_t offset_in(const StridedSpace<1>& space, uint64_t index) {
  uint64_t indices[1] = {index};
  int64_t offsets[1][1];
  offsets_in(space, indices, offsets);
  return offsets[0][0];
}

}  // namespace tessera::cuda
