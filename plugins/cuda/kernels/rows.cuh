// SPDX-License-Identifier: Apache-2.0
// Rows of a matrix on the device: loads of whole packs, rows kept in registers, and sums and maxima
// over the threads of a row in a fixed order.
#pragma once

#include "plugins/cuda/kernels/rows.h"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {

// The row of this thread and its columns: first, first + step, … below width.
struct Place {
  int64_t row, width, first, step;
  int lanes, lane_bits;

  __device__ bool leads() const { return first == 0 && width > 0; }  // One thread of each row.
};

// `number`: the index of a block's set of rows, counted over the grid. Beyond the last row the
// width is 0, so that a thread without a row takes part in shuffles and barriers but touches no
// memory.
__device__ inline Place place_of(const RowShape& rows, int64_t number, int pack) {
  const int lane = static_cast<int>(threadIdx.x) & (rows.lanes - 1);
  const int64_t row = number * (blockDim.x >> rows.lane_bits) + (threadIdx.x >> rows.lane_bits);
  return {.row = row,
          .width = row < rows.count ? rows.width : 0,
          .first = int64_t{lane} * pack,
          .step = int64_t{rows.lanes} * pack,
          .lanes = rows.lanes,
          .lane_bits = rows.lane_bits};
}

// Calls f(column, slot) for the packs of this thread. Slots 0 to kHeld - 1 are constants of
// the unrolled loop, so that arrays indexed by them stay in registers; -1 for packs beyond them.
template <int kHeld, typename F>
__device__ inline void for_packs(const Place& at, F f) {
#pragma unroll
  for (int slot = 0; slot < kHeld; ++slot) {
    const int64_t column = at.first + slot * at.step;
    if (column < at.width) f(column, slot);
  }
#pragma unroll 1
  for (int64_t column = at.first + kHeld * at.step; column < at.width; column += at.step)
    f(column, -1);
}

// A row whose first packs are loaded once.
template <typename T, int kElements, int kHeld>
class HeldRow {
 public:
  __device__ HeldRow(const T* x, const Place& at) : x_(x) {
#pragma unroll
    for (int slot = 0; slot < kHeld; ++slot) {
      const int64_t column = at.first + slot * at.step;
      if (column < at.width) held_[slot].load(x + column);
    }
  }
  // Adds a row, rounds to T and writes the sum, of which packs that are not held are read again.
  __device__ void add(const T* addend, T* sum, const Place& at) {
    const HeldRow other(addend, at);
    for_packs<kHeld>(at, [&](int64_t column, int slot) {
      float value[kElements], term[kElements];
      get(column, slot, value);
      other.get(column, slot, term);
#pragma unroll
      for (int i = 0; i < kElements; ++i) value[i] += term[i];
      Pack<T, kElements> pack;
      pack.narrow(value);
      pack.store(sum + column);
      if (slot >= 0) held_[slot] = pack;
    });
    x_ = sum;
  }
  __device__ void get(int64_t column, int slot, float (&to)[kElements]) const {
    if (slot >= 0) {
      held_[slot].widen(to);
    } else {
      load_vector(x_ + column, to);
    }
  }

 private:
  const T* x_;
  Pack<T, kElements> held_[kHeld] = {};  // Defined where the compiler adds it up speculatively.
};

// Each of `x` becomes its combination over the threads of the row, the same bits in all of them.
// All threads of the block must call it.
template <int kCount, typename Combine>
__device__ inline void combine_lanes(float (&x)[kCount], int lanes, Combine combine) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    if (distance >= lanes) continue;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      x[i] = combine(x[i], __shfl_xor_sync(0xffffffffu, x[i], distance));
  }
  if (lanes <= 32) return;
  __shared__ float parts[kCount][kRowThreads / 32];
  __syncthreads();  // The readers of an earlier call are done.
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (threadIdx.x % 32 == 0) parts[i][threadIdx.x / 32] = x[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    x[i] = parts[i][0];
#pragma unroll 1
    for (int warp = 1; warp < lanes / 32; ++warp) x[i] = combine(x[i], parts[i][warp]);
  }
}
template <int kCount>
__device__ inline void sum_lanes(float (&x)[kCount], int lanes) {
  combine_lanes(x, lanes, [](float a, float b) { return a + b; });
}
__device__ inline float sum_of_lanes(float x, int lanes) {
  float one[1] = {x};
  sum_lanes(one, lanes);
  return one[0];
}
__device__ inline float maximum_of_lanes(float x, int lanes) {
  float one[1] = {x};
  combine_lanes(one, lanes, [](float a, float b) { return fmaxf(a, b); });
  return one[0];
}

// e^x for x <= 0 in two instructions: 2 ulp, and 2^-23 of the argument, which terms near the
// maximum have small. Subnormal results are 0.
__device__ inline float falling_exp(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896341f));
  return y;
}

}  // namespace tessera::cuda
