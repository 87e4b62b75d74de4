// SPDX-License-Identifier: Apache-2.0
// Products of small matrices that are in cache, as attention needs them: no packing, one thread.
// Large ones are packed (matrix_product.h).
#if defined(TESSERA_SMALL_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SMALL_PRODUCT_INL_H_
#undef TESSERA_SMALL_PRODUCT_INL_H_
#else
#define TESSERA_SMALL_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

#include "core/backend/cpu/gemm/matrix_units-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

// A matrix of units (f32, or pairs of bf16; see matrix_kernels.h) whose rows are contiguous.
struct Rows {
  const float* data = nullptr;
  int64_t stride = 0;
};

// The left factor: unit (i, k) at data[i * row + k * column]; so either order of storage will
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
template <class Multiply, int R, int N, bool kAdd>
HWY_INLINE void product_tile(int64_t depth, Factor a, Rows b, float* c, int64_t c_stride) {
  Tile<R, N> tile;
  if constexpr (kAdd) {
    tile.read(c, c_stride);
  } else {
    tile.clear();
  }
  for (int64_t k = 0; k < depth; ++k) {
    Row<N> right;
    right.read(b.data + k * b.stride);
    tile.template add<Multiply>(a.data + k * a.column, a.row, right);
  }
  tile.write(c, c_stride);
}

// `rows` rows of N vectors: whole tiles, then one of the rest.
template <class Multiply, int N, bool kAdd>
HWY_NOINLINE void product_columns(int64_t rows, int64_t depth, Factor a, Rows b, float* c,
                                  int64_t c_stride) {
  for (; rows >= kTileRows; rows -= kTileRows) {
    product_tile<Multiply, kTileRows, N, kAdd>(depth, a, b, c, c_stride);
    a.data += kTileRows * a.row;
    c += kTileRows * c_stride;
  }
  switch (rows) {
    case 5:
      return product_tile<Multiply, 5, N, kAdd>(depth, a, b, c, c_stride);
    case 4:
      return product_tile<Multiply, 4, N, kAdd>(depth, a, b, c, c_stride);
    case 3:
      return product_tile<Multiply, 3, N, kAdd>(depth, a, b, c, c_stride);
    case 2:
      return product_tile<Multiply, 2, N, kAdd>(depth, a, b, c, c_stride);
    case 1:
      return product_tile<Multiply, 1, N, kAdd>(depth, a, b, c, c_stride);
    default:
      return;
  }
}

// c = a·b, or c += a·b. `columns` is a multiple of lanes(); `depth` counts units.
template <bool kAdd, class Multiply = MultiplyF32>
void small_product(int64_t rows, int64_t columns, int64_t depth, Factor a, Rows b, float* c,
                   int64_t c_stride) {
  int64_t vectors = columns / lanes();
  while (vectors > 0) {
    const int64_t now = std::min<int64_t>(vectors, kTileVectors);
    switch (now) {
      case 1:
        product_columns<Multiply, 1, kAdd>(rows, depth, a, b, c, c_stride);
        break;
      case 2:
        product_columns<Multiply, 2, kAdd>(rows, depth, a, b, c, c_stride);
        break;
#if HWY_TARGET != HWY_AVX2 && HWY_TARGET != HWY_SCALAR
      case 3:
        product_columns<Multiply, 3, kAdd>(rows, depth, a, b, c, c_stride);
        break;
      default:
        product_columns<Multiply, 4, kAdd>(rows, depth, a, b, c, c_stride);
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
