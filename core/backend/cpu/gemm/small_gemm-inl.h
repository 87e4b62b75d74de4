// SPDX-License-Identifier: Apache-2.0
// Products of small matrices that are in cache, for attention: no packing, one thread. Large
// products are packed (gemm.h).
#if defined(TESSERA_SMALL_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SMALL_GEMM_INL_H_
#undef TESSERA_SMALL_GEMM_INL_H_
#else
#define TESSERA_SMALL_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

#include "core/backend/cpu/gemm/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

// A matrix of words (f32, or pairs of bf16; see gemm_kernels.h) whose rows are contiguous.
struct Rows {
  const float* data = nullptr;
  int64_t stride = 0;
};

// The left factor, row-major or column-major: word (i, k) is at data[i * row + k * column].
struct Factor {
  const float* data = nullptr;
  int64_t row = 0;
  int64_t column = 0;
};

// Of 32 registers, 24 hold sums, 4 the right factor and 1 a broadcast; of 16, these are 12, 2
// and 1.
inline constexpr int kTileRows = 6;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SCALAR
inline constexpr int kTileVectors = 2;
#else
inline constexpr int kTileVectors = 4;
#endif

// R rows by N vectors of sums, which stay in registers over all of `depth`.
template <class Multiply, int R, int N, bool kAdd>
HWY_INLINE void small_gemm_tile(int64_t depth, Factor a, Rows b, float* c, int64_t c_stride) {
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

// `rows` rows by N vectors: whole tiles, then one tile of the remaining rows.
template <class Multiply, int N, bool kAdd>
HWY_NOINLINE void small_gemm_columns(int64_t rows, int64_t depth, Factor a, Rows b, float* c,
                                     int64_t c_stride) {
  for (; rows >= kTileRows; rows -= kTileRows) {
    small_gemm_tile<Multiply, kTileRows, N, kAdd>(depth, a, b, c, c_stride);
    a.data += kTileRows * a.row;
    c += kTileRows * c_stride;
  }
  switch (rows) {
    case 5:
      return small_gemm_tile<Multiply, 5, N, kAdd>(depth, a, b, c, c_stride);
    case 4:
      return small_gemm_tile<Multiply, 4, N, kAdd>(depth, a, b, c, c_stride);
    case 3:
      return small_gemm_tile<Multiply, 3, N, kAdd>(depth, a, b, c, c_stride);
    case 2:
      return small_gemm_tile<Multiply, 2, N, kAdd>(depth, a, b, c, c_stride);
    case 1:
      return small_gemm_tile<Multiply, 1, N, kAdd>(depth, a, b, c, c_stride);
    default:
      return;
  }
}

// c = a·b, or c += a·b. `columns` is a multiple of lanes(); `depth` counts words.
template <bool kAdd, class Multiply = MultiplyF32>
void small_gemm(int64_t rows, int64_t columns, int64_t depth, Factor a, Rows b, float* c,
                int64_t c_stride) {
  int64_t vectors = columns / lanes();
  while (vectors > 0) {
    const int64_t now = std::min<int64_t>(vectors, kTileVectors);
    switch (now) {
      case 1:
        small_gemm_columns<Multiply, 1, kAdd>(rows, depth, a, b, c, c_stride);
        break;
      case 2:
        small_gemm_columns<Multiply, 2, kAdd>(rows, depth, a, b, c, c_stride);
        break;
#if HWY_TARGET != HWY_AVX2 && HWY_TARGET != HWY_SCALAR
      case 3:
        small_gemm_columns<Multiply, 3, kAdd>(rows, depth, a, b, c, c_stride);
        break;
      default:
        small_gemm_columns<Multiply, 4, kAdd>(rows, depth, a, b, c, c_stride);
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

#endif  // TESSERA_SMALL_GEMM_INL_H_
