// SPDX-License-Identifier: Apache-2.0
// How a block stores its tile of a product, with the epilogue (product.cu, fp8_product.cu).
#pragma once

#include "plugins/cuda/gemm/product_parameters.h"
#include "plugins/cuda/gemm/product_tile.cuh"

namespace tessera::cuda {

__device__ inline float load_element(const void* from, int64_t i, bool is_bf16) {
  return is_bf16 ? to_float(static_cast<const bf16*>(from)[i]) : static_cast<const float*>(from)[i];
}
__device__ inline void store_element(void* to, int64_t i, bool is_bf16, float x) {
  if (is_bf16)
    static_cast<bf16*>(to)[i] = from_float<bf16>(x);
  else
    static_cast<float*>(to)[i] = x;
}

inline constexpr float kGeluSlope = 0.7978845608f, kGeluCubic = 0.044715f;

__device__ inline float activated(Activation activation, float x) {
  if (activation == Activation::kSilu) return x / (1.0f + expf(-x));
  return 0.5f * x * (1.0f + tanhf(kGeluSlope * (x + kGeluCubic * x * x * x)));
}

__device__ inline float slope_of(Activation activation, float x) {
  if (activation == Activation::kSiluGradient) {
    const float s = 1.0f / (1.0f + expf(-x));
    return s * (1.0f + x * (1.0f - s));
  }
  const float t = tanhf(kGeluSlope * (x + kGeluCubic * x * x * x));
  return 0.5f * (1.0f + t) +
         0.5f * x * (1.0f - t * t) * kGeluSlope * (1.0f + 3.0f * kGeluCubic * x * x);
}

// The value to store at element `i` of C, in this column, for the sum x.
__device__ inline float finished(const ProductParameters& p, float x, int64_t i, int column) {
  if (p.bias != nullptr) x += load_element(p.bias, column, p.c_is_bf16);
  if (p.saved != nullptr) store_element(p.saved, i, p.c_is_bf16, x);
  if (p.activation == Activation::kGelu || p.activation == Activation::kSilu)
    x = activated(p.activation, x);
  else if (p.activation != Activation::kNone)
    x *= slope_of(p.activation, load_element(p.slopes, i, p.c_is_bf16));
  if (p.addend != nullptr) x += load_element(p.addend, i, p.c_is_bf16);
  return x;
}

// Stores rows of a tile of C whose sums lie in shared memory, lines of kSize + kStagePad floats.
// Staged row r is row row_of(r) of C.
template <int kThreads, int kSize, typename RowOf>
__device__ void store_rows(const ProductParameters& p, int64_t offset, int column, int rows,
                           const float* staged, const RowOf& row_of) {
  constexpr int kPitch = kSize + kStagePad;
  if (p.c_is_plain) {  // 16 or 32 bytes at a time.
#pragma unroll 1
    for (int chunk = threadIdx.x; chunk < rows * (kSize / 8); chunk += kThreads) {
      const int r = chunk / (kSize / 8), first = chunk % (kSize / 8) * 8;
      const int row = row_of(r);
      if (row >= p.m || column + first >= p.n) continue;
      const float* const from = staged + r * kPitch + first;
      const int64_t i = offset + row * p.c_leading + column + first;
      float low[4], high[4];
      load_vector(from, low);
      load_vector(from + 4, high);
      if (p.c_is_bf16) {
        const float all[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
        store_vector(static_cast<bf16*>(p.c) + i, all);
      } else {
        store_vector(static_cast<float*>(p.c) + i, low);
        store_vector(static_cast<float*>(p.c) + i + 4, high);
      }
    }
    return;
  }
#pragma unroll 1
  for (int e = threadIdx.x; e < rows * kSize; e += kThreads) {
    const int row = row_of(e / kSize), c = column + e % kSize;
    if (row >= p.m || c >= p.n) continue;
    const int64_t i = offset + row * p.c_leading + c;
    store_element(p.c, i, p.c_is_bf16, finished(p, staged[e / kSize * kPitch + e % kSize], i, c));
  }
}

// One tile of one product of a batch. `finish` is applied to each sum before the epilogue.
template <typename Method, typename MatrixA, typename MatrixB, typename Finish>
__device__ void product_tile(const ProductParameters& p, int64_t batch, const MatrixA& a,
                             const MatrixB& b, Shared<Method>& shared, const Finish& finish) {
  constexpr int kSize = Method::kSize;
  const int tiles = (p.n + kSize - 1) / kSize;
  const int row = static_cast<int>(blockIdx.x) / tiles * kSize;
  const int column = static_cast<int>(blockIdx.x) % tiles * kSize;
  typename Method::Sums sums = {};
  sum_tile<Method>(a, b, row, column, p.k, shared, sums);
  finish(sums);
  store_tile<Method>(sums, shared.staged, [&](const auto& row_of) {
    store_rows<Method::kThreads, Method::kSize>(p, batch * p.c_stride, column, Method::kStagedRows,
                                                shared.staged,
                                                [&](int r) { return row + row_of(r); });
  });
}

}  // namespace tessera::cuda
