// SPDX-License-Identifier: Apache-2.0
// squared_norm: the sum of squares of many tensors in one launch, 2 or 4 bytes an element, and a
// second launch of one block that adds the sums of the blocks. The order of additions depends on
// the sizes only.
#include "plugins/cuda/kernels/rows.cuh"
#include "plugins/cuda/kernels/squared_norms.h"
#include "plugins/cuda/kernels/tensor_table.cuh"
#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {
namespace {

template <typename T>
__device__ float sum_of_squares(const SquaredTensor& t, BlockRange range) {
  constexpr int kWidth = kVector<T>;
  const T* const from = static_cast<const T*>(t.from);
  const int64_t vectors_end = range.end / kWidth * kWidth;
  float sums[kWidth] = {};
#pragma unroll 4
  for (int64_t i = range.begin + kWidth * threadIdx.x; i < vectors_end; i += kWidth * kRowThreads) {
    float x[kWidth];
    if (t.aligned) {
      load_vector(from + i, x);
    } else {  // Adds in the same order.
#pragma unroll
      for (int k = 0; k < kWidth; ++k) x[k] = to_float(from[i + k]);
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[k] = fmaf(x[k], x[k], sums[k]);
  }
  for (int64_t i = vectors_end + threadIdx.x; i < range.end; i += kRowThreads) {
    const float x = to_float(from[i]);
    sums[0] = fmaf(x, x, sums[0]);
  }
#pragma unroll
  for (int k = 1; k < kWidth; ++k) sums[0] += sums[k];
  return sums[0];
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kRowThreads)
    sum_of_squares(const __grid_constant__ SquaredNormParameters p) {
  const uint32_t block = p.table.blocks_before + blockIdx.x;
  const SquaredTensor& t = tensor_of(p.table, block);
  const BlockRange range = range_of(p.table, t, block);
  const float own = t.is_bf16 ? sum_of_squares<bf16>(t, range) : sum_of_squares<float>(t, range);
  const float sum = sum_of_lanes(own, kRowThreads);
  if (threadIdx.x == 0) p.sums[block] = sum;
}

extern "C" __global__ void __launch_bounds__(kRowThreads)
    add_squared_norms(const float* sums, int64_t count, float* to) {
  float own = 0.0f;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < count; i += kRowThreads) own += sums[i];
  const float sum = sum_of_lanes(own, kRowThreads);
  if (threadIdx.x == 0) *to = sum;
}

}  // namespace tessera::cuda
