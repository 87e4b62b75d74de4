// SPDX-License-Identifier: Apache-2.0
// Products of small f32 matrices that lie in cache, as attention needs them: no packing, one
// thread. Large ones go to a library (gemm.cc).
#if defined(TESSERA_SMALL_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SMALL_PRODUCT_INL_H_
#undef TESSERA_SMALL_PRODUCT_INL_H_
#else
#define TESSERA_SMALL_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

#include "core/backend/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

// An f32 matrix whose rows are contiguous.
struct Rows {
  const float* data = nullptr;
  int64_t stride = 0;
};

// The left factor: element (i, k) at data[i * row + k * column]; so either order of storage will
// do.
struct Factor {
  const float* data = nullptr;
  int64_t row = 0;
  int64_t column = 0;
};

// Registers: 24 sums, 4 vectors of the right factor and a broadcast with 32; 12, 2 and one with 16.
inline constexpr int kTileRows = 6;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SCALAR
inline constexpr int kTileVectors = 2;
#else
inline constexpr int kTileVectors = 4;
#endif

// One tile: R rows by N vectors of sums stay in registers over all of `depth`.
template <int R, int N, bool kAdd>
HWY_INLINE void product_tile(int64_t depth, Factor a, Rows b, float* c, int64_t c_stride) {
  Vec sum[R][N];
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < N; ++j)
      sum[i][j] = kAdd ? load(c + i * c_stride + j * lanes()) : splat(0.0f);
  for (int64_t k = 0; k < depth; ++k) {
    Vec right[N];
    for (int j = 0; j < N; ++j) right[j] = load(b.data + k * b.stride + j * lanes());
    for (int i = 0; i < R; ++i) {
      const Vec left = splat(a.data[i * a.row + k * a.column]);
      for (int j = 0; j < N; ++j) sum[i][j] = hn::MulAdd(left, right[j], sum[i][j]);
    }
  }
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < N; ++j) store(sum[i][j], c + i * c_stride + j * lanes());
}

// `rows` rows of N vectors: whole tiles, then one of the rest.
template <int N, bool kAdd>
HWY_NOINLINE void product_columns(int64_t rows, int64_t depth, Factor a, Rows b, float* c,
                                  int64_t c_stride) {
  for (; rows >= kTileRows; rows -= kTileRows) {
    product_tile<kTileRows, N, kAdd>(depth, a, b, c, c_stride);
    a.data += kTileRows * a.row;
    c += kTileRows * c_stride;
  }
  switch (rows) {
    case 5:
      return product_tile<5, N, kAdd>(depth, a, b, c, c_stride);
    case 4:
      return product_tile<4, N, kAdd>(depth, a, b, c, c_stride);
    case 3:
      return product_tile<3, N, kAdd>(depth, a, b, c, c_stride);
    case 2:
      return product_tile<2, N, kAdd>(depth, a, b, c, c_stride);
    case 1:
      return product_tile<1, N, kAdd>(depth, a, b, c, c_stride);
    default:
      return;
  }
}

// c = a·b, or c += a·b. `columns` is a multiple of lanes().
template <bool kAdd>
void small_product(int64_t rows, int64_t columns, int64_t depth, Factor a, Rows b, float* c,
                   int64_t c_stride) {
  int64_t vectors = columns / lanes();
  while (vectors > 0) {
    const int64_t now = std::min<int64_t>(vectors, kTileVectors);
    switch (now) {
      case 1:
        product_columns<1, kAdd>(rows, depth, a, b, c, c_stride);
        break;
      case 2:
        product_columns<2, kAdd>(rows, depth, a, b, c, c_stride);
        break;
#if HWY_TARGET != HWY_AVX2 && HWY_TARGET != HWY_SCALAR
      case 3:
        product_columns<3, kAdd>(rows, depth, a, b, c, c_stride);
        break;
      default:
        product_columns<4, kAdd>(rows, depth, a, b, c, c_stride);
        break;
#endif
    }
    b.data += now * lanes();
    c += now * lanes();
    vectors -= now;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_SMALL_PRODUCT_INL_H_
