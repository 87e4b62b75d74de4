// SPDX-License-Identifier: Apache-2.0
// Packing of operand blocks into panels of 32-bit words (gemm_kernels.h), for f32, for bf16 widened
// to f32, and for pairs of bf16. Included once per target, as Highway's -inl.h files are.
#if defined(TESSERA_PACKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_PACKING_INL_H_
#undef TESSERA_PACKING_INL_H_
#else
#define TESSERA_PACKING_INL_H_
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

HWY_INLINE int64_t words_of(int64_t depth, int64_t word_depth, int64_t multiple) {
  const int64_t words = (depth + word_depth - 1) / word_depth;
  return (words + multiple - 1) / multiple * multiple;
}

template <class Format>
HWY_INLINE const typename Format::Element* element(const PackSource& source, int64_t at) {
  return reinterpret_cast<const typename Format::Element*>(source.data) + at;
}

// Packing reads rows at large strides, which hardware prefetchers do not follow.
inline constexpr int64_t kPrefetchedRows = 4;

// Prefetches the cache line of an element once; `word` counts the words before it in the row.
template <typename T>
HWY_INLINE void prefetch_once(const T* element, int64_t word) {
  if (lanes() == kMostLanes || word % kMostLanes == 0) hwy::Prefetch(element);
}

// Packs row-major to [row][word], `row_words` from row to row.
template <class Format, int64_t kMultiple>
void pack_rows(const PackSource& source, int64_t row_words, float* to) {
  const int64_t words = words_of(source.depth, Format::kDepth, kMultiple);
  for (int64_t row = 0; row < source.rows; ++row) {
    const auto* from = element<Format>(source, row * source.stride);
    float* const packed = to + row * row_words;
    const auto* ahead = from + kPrefetchedRows * source.stride;
    const bool more = row + kPrefetchedRows < source.rows;
    for (int64_t w = 0; w < words; w += lanes()) {
      if (more) prefetch_once(ahead + w * Format::kDepth, w);
      store(Format::along(from + w * Format::kDepth, source.depth - w * Format::kDepth),
            packed + w);
    }
  }
}

// Packs row-major to panels of kWidth rows, [word][row].
template <class Format, int64_t kWidth, int64_t kMultiple>
void pack_rows_to_panels(const PackSource& source, float* to) {
  const int64_t words = words_of(source.depth, Format::kDepth, kMultiple);
  HWY_ALIGN Vec square[kMostLanes];
  for (int64_t panel = 0; panel < source.rows; panel += kWidth, to += words * kWidth) {
    for (int64_t first = 0; first < std::min(kWidth, source.rows - panel); first += lanes()) {
      const int64_t count = std::min(lanes(), source.rows - panel - first);
      const auto* from = element<Format>(source, (panel + first) * source.stride);
      for (int64_t w = 0; w < words; w += lanes()) {
        for (int64_t i = 0; i < lanes(); ++i)
          square[i] = i < count ? Format::along(from + i * source.stride + w * Format::kDepth,
                                                source.depth - w * Format::kDepth)
                                : splat(0.0f);
        transpose_square(square);
        for (int64_t i = 0; i < std::min(lanes(), words - w); ++i)
          store(square[i], to + (w + i) * kWidth + first);
      }
    }
  }
}

// Returns word `word` of the rows from `row` on, of a column-major source. A load may run over the
// last row into the next k, since rows beyond a panel are never stored; only the end of the source
// limits it.
template <class Format>
HWY_INLINE Vec word_of_rows(const PackSource& source, int64_t word, int64_t row) {
  const int64_t k = word * Format::kDepth;
  const auto* const from = element<Format>(source, k * source.stride + row);
  const int64_t columns_after = source.depth - 1 - k;
  const int64_t left = columns_after * source.stride + source.rows - row;
  if (Format::kDepth == 1) return Format::across(from, nullptr, left);
  // The second column of a pair is one column nearer to the end.
  const bool paired = columns_after > 0;
  return Format::across(from, paired ? from + source.stride : nullptr,
                        paired ? left - source.stride : left);
}

// Columns of a column-major source that go to one panel before the next panel's turn: reads stay
// near each other, and so do writes.
inline constexpr int64_t kColumnsAtOnce = 8;

// Packs column-major to panels of kWidth rows, [word][row]; panels are `panel_floats` apart. Whole
// vectors are stored, so that up to lanes() - 1 floats after a panel are overwritten where kWidth
// is not a multiple of lanes().
template <class Format, int64_t kWidth, int64_t kMultiple>
void pack_columns_to_panels(const PackSource& source, int64_t panel_floats, float* to) {
  const int64_t filled = words_of(source.depth, Format::kDepth, 1);
  const int64_t words = words_of(source.depth, Format::kDepth, kMultiple);
  for (int64_t begin = 0; begin < words; begin += kColumnsAtOnce) {
    float* panel_to = to;
    for (int64_t panel = 0; panel < source.rows; panel += kWidth, panel_to += panel_floats) {
      for (int64_t w = begin; w < std::min(begin + kColumnsAtOnce, words); ++w) {
        const int64_t next = (w + kColumnsAtOnce) * Format::kDepth;
        for (int64_t i = 0; i < kWidth; i += lanes()) {
          if (next < source.depth) {
            const auto* ahead = element<Format>(source, next * source.stride + panel + i);
            prefetch_once(ahead, i);
            if (Format::kDepth == 2) prefetch_once(ahead + source.stride, i);
          }
          const bool empty = w >= filled || panel + i >= source.rows;
          store(empty ? splat(0.0f) : word_of_rows<Format>(source, w, panel + i),
                panel_to + w * kWidth + i);
        }
      }
    }
  }
}

// Packs column-major to [row][word], kRowWords from row to row.
template <class Format, int64_t kMultiple>
void pack_columns_to_rows(const PackSource& source, float* to) {
  const int64_t filled = words_of(source.depth, Format::kDepth, 1);
  const int64_t words = words_of(source.depth, Format::kDepth, kMultiple);
  HWY_ALIGN Vec square[kMostLanes];
  for (int64_t row = 0; row < source.rows; row += lanes()) {
    const int64_t count = std::min(lanes(), source.rows - row);
    for (int64_t w = 0; w < words; w += lanes()) {
      for (int64_t i = 0; i < lanes(); ++i)
        square[i] = w + i < filled ? word_of_rows<Format>(source, w + i, row) : splat(0.0f);
      transpose_square(square);
      for (int64_t i = 0; i < count; ++i) store(square[i], to + (row + i) * kRowWords + w);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_PACKING_INL_H_
