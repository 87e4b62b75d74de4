// SPDX-License-Identifier: Apache-2.0
// Products of a few rows (the tokens of a decoding step) with a large matrix. They are bound by
// memory bandwidth, so B is read once, in order, without packing. Sums are the same chains of
// additions as in the microkernels, so that a row has the same bits among few rows and among many.
#if defined(TESSERA_SKINNY_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SKINNY_GEMM_INL_H_
#undef TESSERA_SKINNY_GEMM_INL_H_
#else
#define TESSERA_SKINNY_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/devices/cpu/gemm/gemm_kernels.h"
#include "core/devices/cpu/gemm/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

// Words of a row-major B that are added to the sums in one pass, while the next are prefetched.
inline constexpr int64_t kSkinnyWords = 8;

// Adds kWords words of B, from row `k` on, to the sums of `columns` columns from `column` on.
template <class Format, class Multiply, int kWords>
HWY_INLINE void add_rows_of_b(const SkinnyGemm& p, int64_t k, int64_t column, int64_t columns,
                              float* sums, int64_t sums_stride) {
  using Element = typename Format::Element;
  const auto* const b = static_cast<const Element*>(p.b) + k * p.b_stride + column;
  constexpr int64_t kRows = kWords * Format::kDepth;
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(Element));
  const bool more = k + 2 * kRows <= p.k;
  for (int64_t j = 0; j < columns; j += lanes()) {
    const int64_t left = columns - j;
    Vec right[kWords];
    for (int i = 0; i < kWords; ++i) {
      const Element* const row = b + i * Format::kDepth * p.b_stride + j;
      const bool paired = Format::kDepth == 2 && k + i * Format::kDepth + 1 < p.k;
      right[i] = Format::across(row, paired ? row + p.b_stride : nullptr, left);
    }
    if (more && j % kLine == 0)
      for (int64_t i = 0; i < kRows; ++i) hwy::Prefetch(b + (kRows + i) * p.b_stride + j);
    const float* a = p.a + k / Format::kDepth;
    float* at = sums + j;
    for (int64_t row = 0; row < p.m; ++row, a += p.a_stride, at += sums_stride) {
      Vec sum = load(at);
      for (int i = 0; i < kWords; ++i) sum = Multiply::add(a + i, right[i], sum);
      store(sum, at);
    }
  }
}

template <class Multiply>
HWY_INLINE void write_row(const SkinnyGemm& p, const float* sums, int64_t row, int64_t column,
                          int64_t columns) {
  const int64_t out = row * p.out_stride + column;
  for (int64_t j = 0; j < columns; j += lanes()) {
    const Vec sum = load(sums + j);
    if (p.out_is_bf16) {
      Multiply::store_bf16(sum, static_cast<BFloat16*>(p.out) + out + j, columns - j);
    } else {
      store(sum, static_cast<float*>(p.out) + out + j, columns - j);
    }
  }
}

// Multiplies by a row-major B, read once for each span of columns whose sums fit in the L1 cache.
template <class Format, class Multiply>
void multiply_rows_of_b(const SkinnyGemm& p) {
  const int64_t span = kSkinnySums / p.m / kMostLanes * kMostLanes;
  const int64_t stride = span + kMostLanes;
  for (int64_t column = 0; column < p.n; column += span) {
    const int64_t columns = std::min(span, p.n - column);
    std::fill_n(p.sums, p.m * stride, 0.0f);
    int64_t k = 0;
    for (; k + kSkinnyWords * Format::kDepth <= p.k; k += kSkinnyWords * Format::kDepth)
      add_rows_of_b<Format, Multiply, kSkinnyWords>(p, k, column, columns, p.sums, stride);
    for (; k < p.k; k += Format::kDepth)
      add_rows_of_b<Format, Multiply, 1>(p, k, column, columns, p.sums, stride);
    for (int64_t row = 0; row < p.m; ++row)
      write_row<Multiply>(p, p.sums + row * stride, row, column, columns);
  }
}

// Multiplies by a transposed B: one vector of columns at a time, transposed in registers.
template <class Format, class Multiply>
void multiply_columns_of_b(const SkinnyGemm& p) {
  using Element = typename Format::Element;
  HWY_ALIGN Vec square[kMostLanes];
  const int64_t ahead = lanes() * p.b_stride;
  for (int64_t column = 0; column < p.n; column += lanes()) {
    const int64_t columns = std::min(lanes(), p.n - column);
    const auto* const b = static_cast<const Element*>(p.b) + column * p.b_stride;
    const bool more = column + 2 * lanes() <= p.n;
    std::fill_n(p.sums, p.m * lanes(), 0.0f);
    for (int64_t k = 0; k < p.k; k += lanes() * Format::kDepth) {
      for (int64_t i = 0; i < lanes(); ++i) {
        const Element* const from = b + i * p.b_stride + k;
        square[i] = i < columns ? Format::along(from, p.k - k) : splat(0.0f);
        if (more) hwy::Prefetch(from + ahead);
      }
      transpose_square(square);
      const float* a = p.a + k / Format::kDepth;
      const int64_t words = std::min(lanes(), (p.k - k + Format::kDepth - 1) / Format::kDepth);
      for (int64_t row = 0; row < p.m; ++row, a += p.a_stride) {
        Vec sum = load(p.sums + row * lanes());
        for (int64_t i = 0; i < words; ++i) sum = Multiply::add(a + i, square[i], sum);
        store(sum, p.sums + row * lanes());
      }
    }
    for (int64_t row = 0; row < p.m; ++row)
      write_row<Multiply>(p, p.sums + row * lanes(), row, column, columns);
  }
}

template <class Format, class Multiply>
void multiply_skinny(const SkinnyGemm& p) {
  if (p.b_transposed) {
    multiply_columns_of_b<Format, Multiply>(p);
  } else {
    multiply_rows_of_b<Format, Multiply>(p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_SKINNY_GEMM_INL_H_
