// SPDX-License-Identifier: Apache-2.0
// The 32-bit words of GEMM (gemm_kernels.h): how they are read from memory, transposed, multiplied
// and summed in registers; and products of small matrices. Included once per target, as Highway's
// -inl.h files are.
#if defined(TESSERA_REGISTER_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_REGISTER_TILE_INL_H_
#undef TESSERA_REGISTER_TILE_INL_H_
#else
#define TESSERA_REGISTER_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/devices/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

// The most lanes of any target: 512 bits.
inline constexpr int64_t kMostLanes = 16;

// Reads of words from elements in memory. `along`: a vector of words along k, from memory that is
// contiguous along k. `across`: one word of each of a vector of rows, from memory that is
// contiguous across rows: the elements at `k` and, for pairs, those at k + 1 (`next`; null beyond
// the end). `left` counts the elements that may be read; the others are zero.
struct F32Format {
  using Element = float;
  static constexpr int64_t kDepth = 1;
  static HWY_INLINE Vec along(const float* row, int64_t left) { return load(row, left); }
  static HWY_INLINE Vec across(const float* k, const float*, int64_t left) { return load(k, left); }
};

struct WidenedBf16Format {
  using Element = BFloat16;
  static constexpr int64_t kDepth = 1;
  static HWY_INLINE Vec along(const BFloat16* row, int64_t left) { return load(row, left); }
  static HWY_INLINE Vec across(const BFloat16* k, const BFloat16*, int64_t left) {
    return load(k, left);
  }
};

struct Bf16PairFormat {
  using Element = BFloat16;
  static constexpr int64_t kDepth = 2;
  static HWY_INLINE Vec along(const BFloat16* row, int64_t left) {
    if (HWY_LIKELY(left >= 2 * lanes()))
      return hn::LoadU(kFloats, reinterpret_cast<const float*>(row));
    HWY_ALIGN float words[kMostLanes] = {};
    if (left > 0) std::memcpy(words, row, static_cast<size_t>(left) * sizeof(BFloat16));
    return hn::Load(kFloats, words);
  }
  // The first element of a pair is the lower half of its word.
  static HWY_INLINE Vec across(const BFloat16* k, const BFloat16* next, int64_t left) {
    const auto low = hn::ShiftRight<16>(hn::BitCast(Words(), load(k, left)));
    const auto high = next == nullptr ? hn::Zero(Words()) : hn::BitCast(Words(), load(next, left));
    return hn::BitCast(kFloats, hn::Or(low, high));
  }
};

// Transposes: rows[i][j] becomes rows[j][i], lanes() of both.
HWY_INLINE void transpose_square(Vec* HWY_RESTRICT rows) {
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(rows);  // One lane.
#else
  // 4 by 4 within blocks of 128 bits.
  for (int64_t i = 0; i < lanes(); i += 4) {
    const Vec a = hn::InterleaveLower(kFloats, rows[i], rows[i + 2]);
    const Vec b = hn::InterleaveUpper(kFloats, rows[i], rows[i + 2]);
    const Vec c = hn::InterleaveLower(kFloats, rows[i + 1], rows[i + 3]);
    const Vec d = hn::InterleaveUpper(kFloats, rows[i + 1], rows[i + 3]);
    rows[i] = hn::InterleaveLower(kFloats, a, c);
    rows[i + 1] = hn::InterleaveUpper(kFloats, a, c);
    rows[i + 2] = hn::InterleaveLower(kFloats, b, d);
    rows[i + 3] = hn::InterleaveUpper(kFloats, b, d);
  }
#endif
#if HWY_TARGET == HWY_AVX2
  for (int64_t i = 0; i < 4; ++i) {
    const Vec low = rows[i], high = rows[i + 4];
    rows[i] = hn::ConcatLowerLower(kFloats, high, low);
    rows[i + 4] = hn::ConcatUpperUpper(kFloats, high, low);
  }
#elif HWY_TARGET <= HWY_AVX3
  // 4 by 4 blocks of 128 bits, in two steps.
  for (int64_t i = 0; i < 4; ++i) {
    const __m512 a = rows[i].raw, b = rows[i + 4].raw, c = rows[i + 8].raw, d = rows[i + 12].raw;
    const __m512 low_ab = _mm512_shuffle_f32x4(a, b, 0x44),
                 high_ab = _mm512_shuffle_f32x4(a, b, 0xee);
    const __m512 low_cd = _mm512_shuffle_f32x4(c, d, 0x44),
                 high_cd = _mm512_shuffle_f32x4(c, d, 0xee);
    rows[i] = Vec{_mm512_shuffle_f32x4(low_ab, low_cd, 0x88)};
    rows[i + 4] = Vec{_mm512_shuffle_f32x4(low_ab, low_cd, 0xdd)};
    rows[i + 8] = Vec{_mm512_shuffle_f32x4(high_ab, high_cd, 0x88)};
    rows[i + 12] = Vec{_mm512_shuffle_f32x4(high_ab, high_cd, 0xdd)};
  }
#endif
}

// Rounds two f32 vectors to pairs of bf16, `low` first.
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE __m256i narrowed(Vec value) {
  __m256i narrow;
  __asm__("vcvtneps2bf16 %1, %0" : "=v"(narrow) : "v"(value.raw));
  return narrow;
}
HWY_INLINE Vec paired(Vec low, Vec high) {
  const __m512i upper = _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrowed(high)), 16);
  return Vec{_mm512_castsi512_ps(_mm512_or_si512(upper, _mm512_cvtepu16_epi32(narrowed(low))))};
}
#endif

// Adds a broadcast word of A times a vector of words of B to a vector of sums.
struct MultiplyF32 {
  static HWY_INLINE Vec add(const float* a, Vec b, Vec sum) {
    return hn::MulAdd(splat(*a), b, sum);
  }
  // Stores the first `left` sums, rounded to bf16.
  static HWY_INLINE void store_bf16(Vec sum, BFloat16* to, int64_t left) { store(sum, to, left); }
};

#if HWY_TARGET <= HWY_AVX3
// Assembly, because compilers offer the intrinsic only in functions compiled for AVX512_BF16.
struct MultiplyPairs {
  static HWY_INLINE Vec add(const float* a, Vec b, Vec sum) {
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "m"(*a));
    return sum;
  }
  static HWY_INLINE void store_bf16(Vec sum, BFloat16* to, int64_t left) {
    const __m256i narrow = narrowed(sum);
    if (HWY_LIKELY(left >= lanes())) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow);
    } else {
      std::memcpy(to, &narrow, static_cast<size_t>(left) * sizeof(BFloat16));
    }
  }
};
#endif

// A register tile: R rows of N vectors. Recursive structs instead of arrays, because compilers then
// keep each member in a register.
template <int N>
struct Row {
  Vec first;
  Row<N - 1> rest;

  HWY_INLINE void clear() {
    first = splat(0.0f);
    rest.clear();
  }
  HWY_INLINE void read(const float* from) {
    first = load(from);
    rest.read(from + lanes());
  }
  HWY_INLINE void write(float* to) const {
    store(first, to);
    rest.write(to + lanes());
  }
  // Adds one word of A times N vectors of words of B.
  template <class Multiply>
  HWY_INLINE void add(const float* a, const Row<N>& b) {
    first = Multiply::add(a, b.first, first);
    rest.template add<Multiply>(a, b.rest);
  }
};
template <>
struct Row<0> {
  HWY_INLINE void clear() {}
  HWY_INLINE void read(const float*) {}
  HWY_INLINE void write(float*) const {}
  template <class Multiply>
  HWY_INLINE void add(const float*, const Row<0>&) {}
};

template <int R, int N>
struct Tile {
  Row<N> first;
  Tile<R - 1, N> rest;

  HWY_INLINE void clear() {
    first.clear();
    rest.clear();
  }
  HWY_INLINE void read(const float* from, int64_t stride) {
    first.read(from);
    rest.read(from + stride, stride);
  }
  HWY_INLINE void write(float* to, int64_t stride) const {
    first.write(to);
    rest.write(to + stride, stride);
  }
  // Adds R words of A, `step` apart, times N vectors of words of B: one rank-1 update of the tile.
  template <class Multiply>
  HWY_INLINE void add(const float* a, int64_t step, const Row<N>& b) {
    first.template add<Multiply>(a, b);
    rest.template add<Multiply>(a + step, step, b);
  }
};
template <int N>
struct Tile<0, N> {
  HWY_INLINE void clear() {}
  HWY_INLINE void read(const float*, int64_t) {}
  HWY_INLINE void write(float*, int64_t) const {}
  template <class Multiply>
  HWY_INLINE void add(const float*, int64_t, const Row<N>&) {}
};

// Products of small matrices that are in cache, for attention: no packing, one thread. Large
// products are packed (gemm.h).

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

// Rows of a register tile. With 32 registers, 24 hold sums, 4 the right factor and 1 a broadcast;
// with 16, 12, 2 and 1.
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

// Computes c = a·b, or c += a·b. `columns` is a multiple of lanes(); `depth` counts words.
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

#endif  // TESSERA_REGISTER_TILE_INL_H_
