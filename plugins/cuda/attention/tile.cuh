// SPDX-License-Identifier: Apache-2.0
// Building blocks of the attention kernels: tiles of rows in shared memory, and products of them
// by one warp, for bf16 (tensor cores) and f32 (ordinary FMAs) with one interface.
//
// A warp's result is 16 rows by 8·N columns in N fragments of mma.sync.m16n8k16 (PTX ISA, "Matrix
// Fragments for mma.m16n8k16"): with row = lane / 4 and column = 2·(lane % 4), a thread holds
//   sums[n][0], sums[n][1]: row,     columns 8·n + column, + 1
//   sums[n][2], sums[n][3]: row + 8, the same columns.
// The f32 functions use the same layout, so that kernels are written once.
#pragma once

#include "plugins/cuda/attention/attention.h"
#include "plugins/cuda/kernels/mma.cuh"

namespace tessera::cuda {

// Elements between rows of a tile in shared memory.
template <typename T, int kWidth>
inline constexpr int kTileStride = kWidth + kVector<T>;

// The rows of one head in global memory. Row r is at (r / pack)·stride + (r % pack)·head_dim.
template <typename T>
struct HeadRows {
  T* base;
  int64_t stride;
  int count, head_dim, pack;

  __device__ T* row(int r) const {
    if (pack == 1) return base + r * stride;
    return base + (r / pack) * stride + (r % pack) * head_dim;
  }
};

// Starts copying rows [first, first + kRows) to a tile; zeros past the last row and column.
template <int kRows, int kWidth, int kThreads, typename T>
__device__ inline void load_tile(T* to, const HeadRows<const T>& from, int first, bool aligned) {
  constexpr int kStride = kTileStride<T, kWidth>;
  if (aligned) {
    // A thread copies one column of vectors, every kStep rows.
    constexpr int kVectors = kWidth / kVector<T>, kStep = kThreads / kVectors;
    static_assert(kThreads % kVectors == 0 && kRows % kStep == 0);
    const int first_row = static_cast<int>(threadIdx.x) / kVectors;
    const int column = static_cast<int>(threadIdx.x) % kVectors * kVector<T>;
    const int rows = column < from.head_dim ? from.count - first : 0;
    const T* const source = from.row(first + first_row) + column;
    to += first_row * kStride + column;
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      const bool valid = first_row + i * kStep < rows;
      const T* const at = from.pack == 1 ? source + i * kStep * from.stride
                                         : from.row(first + first_row + i * kStep) + column;
      copy_async(to + i * kStep * kStride, valid ? at : from.base, valid ? 16 : 0);
    }
    return;
  }
  for (int item = static_cast<int>(threadIdx.x); item < kRows * kWidth; item += kThreads) {
    const int row = item / kWidth, column = item % kWidth;
    const bool valid = first + row < from.count && column < from.head_dim;
    to[row * kStride + column] = valid ? from.row(first + row)[column] : from_float<T>(0.0f);
  }
}

__device__ inline uint32_t packed(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline void store_pair(bf16* to, float low, float high) {
  *reinterpret_cast<uint32_t*>(to) = packed(low, high);
}
__device__ inline void store_pair(float* to, float low, float high) {
  *reinterpret_cast<float2*>(to) = make_float2(low, high);
}

// Writes a warp's sums times factor[row half] to its 16 rows in global memory, as whole vectors:
// through `staging`, 16 rows of a tile that only this warp uses. Columns from `first_column` on.
template <int kWidth, int N, typename T>
__device__ inline void store_rows(const HeadRows<T>& to, int first_row, int first_column,
                                  const float (&sums)[N][4], const float (&factor)[2], T* staging,
                                  bool aligned) {
  constexpr int kStride = kTileStride<T, kWidth>;
  const int lane = threadIdx.x % 32;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      store_pair(staging + (lane / 4 + 8 * h) * kStride + 8 * n + lane % 4 * 2,
                 sums[n][2 * h] * factor[h], sums[n][2 * h + 1] * factor[h]);
  __syncwarp();
  const int rows = min(16, to.count - first_row), columns = min(8 * N, to.head_dim - first_column);
  if (aligned) {
    constexpr int kVectors = 8 * N / kVector<T>;
#pragma unroll
    for (int i = lane; i < 16 * kVectors; i += 32) {
      const int row = i / kVectors, column = i % kVectors * kVector<T>;
      if (row < rows && column < columns)
        *reinterpret_cast<uint4*>(to.row(first_row + row) + first_column + column) =
            *reinterpret_cast<const uint4*>(staging + row * kStride + column);
    }
    return;
  }
  for (int i = lane; i < 16 * 8 * N; i += 32) {
    const int row = i / (8 * N), column = i % (8 * N);
    if (row < rows && column < columns)
      to.row(first_row + row)[first_column + column] = staging[row * kStride + column];
  }
}

// sums[16 × 8·N] += left · rightᵀ for 16 rows `left` and 8·N rows `right` of tiles.
template <int kWidth, int N>
__device__ inline void add_products(float (&sums)[N][4], const bf16* left, const bf16* right) {
  constexpr int kStride = kTileStride<bf16, kWidth>;
  const int lane = threadIdx.x % 32;
  left += lane % 16 * kStride + lane / 16 * 8;
  right += (lane % 8 + lane / 16 * 8) * kStride + lane / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < kWidth; k += 16) {
    uint32_t a[4];
    load_matrices<false>(left + k, a);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      uint32_t b[4];
      load_matrices<false>(right + n * 8 * kStride + k, b);
      multiply_add(a, b[0], b[1], sums[n]);
      multiply_add(a, b[2], b[3], sums[n + 1]);
    }
  }
}

// The two factors of a product are 16-byte vectors along the head.
template <int kWidth, int N>
__device__ inline void add_products(float (&sums)[N][4], const float* left, const float* right) {
  constexpr int kStride = kTileStride<float, kWidth>;
  const int lane = threadIdx.x % 32;
  left += lane / 4 * kStride;
  right += lane % 4 * 2 * kStride;
#pragma unroll 1
  for (int k = 0; k < kWidth; k += 4) {
    float a[2][4];
    load_vector(left + k, a[0]);
    load_vector(left + 8 * kStride + k, a[1]);
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float b[4];
        load_vector(right + (8 * n + j) * kStride + k, b);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[n][j] = fmaf(a[0][i], b[i], sums[n][j]);
          sums[n][2 + j] = fmaf(a[1][i], b[i], sums[n][2 + j]);
        }
      }
    }
  }
}

// sums[16 × 8·M] += weights[16 × 8·N] · rows, for 8·M columns of 8·N rows of a tile. Fragments of
// a result are, packed to bf16, the left fragments of the next product.
template <int kWidth, int M, int N>
__device__ inline void add_weighted(float (&sums)[M][4], const float (&weights)[N][4],
                                    const bf16* rows) {
  constexpr int kStride = kTileStride<bf16, kWidth>;
  const int lane = threadIdx.x % 32;
  rows += lane % 16 * kStride + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < N; k += 2) {
    const uint32_t a[4] = {
        packed(weights[k][0], weights[k][1]), packed(weights[k][2], weights[k][3]),
        packed(weights[k + 1][0], weights[k + 1][1]), packed(weights[k + 1][2], weights[k + 1][3])};
#pragma unroll
    for (int m = 0; m < M; m += 2) {
      uint32_t b[4];
      load_matrices<true>(rows + k * 8 * kStride + m * 8, b);
      multiply_add(a, b[0], b[1], sums[m]);
      multiply_add(a, b[2], b[3], sums[m + 1]);
    }
  }
}

// The weight of row k is with one of the four lanes that share a row of the result.
template <int kWidth, int M, int N>
__device__ inline void add_weighted(float (&sums)[M][4], const float (&weights)[N][4],
                                    const float* rows) {
  constexpr int kStride = kTileStride<float, kWidth>;
  const int lane = threadIdx.x % 32;
  rows += lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < N; ++n) {
// Where the sums of a wide head fill the registers, fewer loads at a time.
#pragma unroll(M <= 8 ? 8 : M <= 16 ? 4 : 1)
    for (int k = 0; k < 8; ++k) {
      const int from = lane / 4 * 4 + k / 2;
      const float low = __shfl_sync(0xffffffffu, k % 2 == 0 ? weights[n][0] : weights[n][1], from);
      const float high = __shfl_sync(0xffffffffu, k % 2 == 0 ? weights[n][2] : weights[n][3], from);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        const float2 b = *reinterpret_cast<const float2*>(rows + (8 * n + k) * kStride + 8 * m);
        sums[m][0] = fmaf(low, b.x, sums[m][0]);
        sums[m][1] = fmaf(low, b.y, sums[m][1]);
        sums[m][2] = fmaf(high, b.x, sums[m][2]);
        sums[m][3] = fmaf(high, b.y, sums[m][3]);
      }
    }
  }
}

}  // namespace tessera::cuda
