// SPDX-License-Identifier: Apache-2.0
// Products of a few rows (the tokens of a decoding step) with a large matrix, which is read once,
// in order and unpacked: as fast as memory gives it. Sums are the same chains of additions as those
// of register tiles, so that a row has the same bits among few rows and among many.
#if defined(TESSERA_MATRIX_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_MATRIX_STREAM_INL_H_
#undef TESSERA_MATRIX_STREAM_INL_H_
#else
#define TESSERA_MATRIX_STREAM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/backend/cpu/gemm/matrix_kernels.h"
#include "core/backend/cpu/gemm/matrix_units-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

// Units of a row-major B that enter a sum at once, from which the next are asked of memory ahead.
inline constexpr int64_t kStreamDepth = 8;

// Adds kUnits units of B, from row `k` on, to the sums of `columns` columns from `column` on.
template <class Units, class Multiply, int kUnits>
HWY_INLINE void add_rows_of_b(const FewRowsProduct& p, int64_t k, int64_t column, int64_t columns,
                              float* sums, int64_t sums_stride) {
  using Element = typename Units::Element;
  const auto* const b = static_cast<const Element*>(p.b) + k * p.b_stride + column;
  constexpr int64_t kRows = kUnits * Units::kDepth;
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(Element));
  const bool more = k + 2 * kRows <= p.k;
  for (int64_t j = 0; j < columns; j += lanes()) {
    const int64_t left = columns - j;
    Vec right[kUnits];
    for (int i = 0; i < kUnits; ++i) {
      const Element* const row = b + i * Units::kDepth * p.b_stride + j;
      const bool paired = Units::kDepth == 2 && k + i * Units::kDepth + 1 < p.k;
      right[i] = Units::across(row, paired ? row + p.b_stride : nullptr, left);
    }
    if (more && j % kLine == 0) {
      for (int64_t i = 0; i < kRows; ++i) hwy::Prefetch(b + (kRows + i) * p.b_stride + j);
    }
    const float* a = p.a + k / Units::kDepth;
    float* at = sums + j;
    for (int64_t row = 0; row < p.m; ++row, a += p.a_stride, at += sums_stride) {
      Vec sum = load(at);
      for (int i = 0; i < kUnits; ++i) sum = Multiply::add(a + i, right[i], sum);
      store(sum, at);
    }
  }
}

template <class Multiply>
HWY_INLINE void write_row(const FewRowsProduct& p, const float* sums, int64_t row, int64_t column,
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

// The rows of B stream by once for each span of columns, whose sums stay in the first-level cache.
template <class Units, class Multiply>
void stream_rows(const FewRowsProduct& p) {
  const int64_t span = kStreamSums / p.m / kMostLanes * kMostLanes;
  const int64_t stride = span + kMostLanes;
  for (int64_t column = 0; column < p.n; column += span) {
    const int64_t columns = std::min(span, p.n - column);
    std::fill_n(p.sums, p.m * stride, 0.0f);
    int64_t k = 0;
    for (; k + kStreamDepth * Units::kDepth <= p.k; k += kStreamDepth * Units::kDepth)
      add_rows_of_b<Units, Multiply, kStreamDepth>(p, k, column, columns, p.sums, stride);
    for (; k < p.k; k += Units::kDepth)
      add_rows_of_b<Units, Multiply, 1>(p, k, column, columns, p.sums, stride);
    for (int64_t row = 0; row < p.m; ++row)
      write_row<Multiply>(p, p.sums + row * stride, row, column, columns);
  }
}

// Columns of a transposed B, a vector of them at a time, transposed in registers.
template <class Units, class Multiply>
void stream_columns(const FewRowsProduct& p) {
  using Element = typename Units::Element;
  HWY_ALIGN Vec square[kMostLanes];
  const int64_t ahead = lanes() * p.b_stride;
  for (int64_t column = 0; column < p.n; column += lanes()) {
    const int64_t columns = std::min(lanes(), p.n - column);
    const auto* const b = static_cast<const Element*>(p.b) + column * p.b_stride;
    const bool more = column + 2 * lanes() <= p.n;
    std::fill_n(p.sums, p.m * lanes(), 0.0f);
    for (int64_t k = 0; k < p.k; k += lanes() * Units::kDepth) {
      for (int64_t i = 0; i < lanes(); ++i) {
        const Element* const from = b + i * p.b_stride + k;
        square[i] = i < columns ? Units::along(from, p.k - k) : splat(0.0f);
        if (more) hwy::Prefetch(from + ahead);
      }
      transpose_square(square);
      const float* a = p.a + k / Units::kDepth;
      const int64_t units = std::min(lanes(), (p.k - k + Units::kDepth - 1) / Units::kDepth);
      for (int64_t row = 0; row < p.m; ++row, a += p.a_stride) {
        Vec sum = load(p.sums + row * lanes());
        for (int64_t i = 0; i < units; ++i) sum = Multiply::add(a + i, square[i], sum);
        store(sum, p.sums + row * lanes());
      }
    }
    for (int64_t row = 0; row < p.m; ++row)
      write_row<Multiply>(p, p.sums + row * lanes(), row, column, columns);
  }
}

template <class Units, class Multiply>
void multiply_few_rows(const FewRowsProduct& p) {
  if (p.b_transposed) {
    stream_columns<Units, Multiply>(p);
  } else {
    stream_rows<Units, Multiply>(p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_MATRIX_STREAM_INL_H_
