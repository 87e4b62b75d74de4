// SPDX-License-Identifier: Apache-2.0
// Packing of matrix blocks into panels of 32-bit units (matrix_kernels.h), for f32, for bf16
// widened to f32, and for bf16 in pairs. Included once per target, as Highway's -inl.h files are.
#if defined(TESSERA_MATRIX_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_MATRIX_PACK_INL_H_
#undef TESSERA_MATRIX_PACK_INL_H_
#else
#define TESSERA_MATRIX_PACK_INL_H_
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

HWY_INLINE int64_t units_of(int64_t depth, int64_t unit_depth, int64_t multiple) {
  const int64_t units = (depth + unit_depth - 1) / unit_depth;
  return (units + multiple - 1) / multiple * multiple;
}

template <class Units>
HWY_INLINE const typename Units::Element* element(const PackSource& source, int64_t at) {
  return reinterpret_cast<const typename Units::Element*>(source.data) + at;
}

// Packing reads rows far apart, which processors do not foresee: it asks for them ahead.
inline constexpr int64_t kLinesAhead = 4;

// Asks for the cache line of an element once; `unit` counts the units before it.
template <typename T>
HWY_INLINE void prefetch_once(const T* element, int64_t unit) {
  if (lanes() == kMostLanes || unit % kMostLanes == 0) hwy::Prefetch(element);
}

// Lines contiguous along k, to [line][unit] with `line_units` from line to line.
template <class Units, int64_t kMultiple>
void pack_line_major(const PackSource& source, int64_t line_units, float* to) {
  const int64_t units = units_of(source.depth, Units::kDepth, kMultiple);
  for (int64_t line = 0; line < source.lines; ++line) {
    const auto* from = element<Units>(source, line * source.stride);
    float* const row = to + line * line_units;
    const auto* ahead = from + kLinesAhead * source.stride;
    const bool more = line + kLinesAhead < source.lines;
    for (int64_t u = 0; u < units; u += lanes()) {
      if (more) prefetch_once(ahead + u * Units::kDepth, u);
      store(Units::along(from + u * Units::kDepth, source.depth - u * Units::kDepth), row + u);
    }
  }
}

// Lines contiguous along k, to panels of kWidth lines, [unit][line].
template <class Units, int64_t kWidth, int64_t kMultiple>
void pack_turned(const PackSource& source, float* to) {
  const int64_t units = units_of(source.depth, Units::kDepth, kMultiple);
  HWY_ALIGN Vec square[kMostLanes];
  for (int64_t panel = 0; panel < source.lines; panel += kWidth, to += units * kWidth) {
    for (int64_t first = 0; first < std::min(kWidth, source.lines - panel); first += lanes()) {
      const int64_t count = std::min(lanes(), source.lines - panel - first);
      const auto* from = element<Units>(source, (panel + first) * source.stride);
      for (int64_t u = 0; u < units; u += lanes()) {
        for (int64_t i = 0; i < lanes(); ++i) {
          square[i] = i < count ? Units::along(from + i * source.stride + u * Units::kDepth,
                                               source.depth - u * Units::kDepth)
                                : splat(0.0f);
        }
        transpose_square(square);
        for (int64_t i = 0; i < std::min(lanes(), units - u); ++i)
          store(square[i], to + (u + i) * kWidth + first);
      }
    }
  }
}

// The lines from `line` on of unit `u`. A load may run over the end of a row of k into the next
// one, since lines that a panel does not have are never stored; only the source's end is its limit.
template <class Units>
HWY_INLINE Vec lines_of_unit(const PackSource& source, int64_t u, int64_t line) {
  const int64_t k = u * Units::kDepth;
  const auto* const from = element<Units>(source, k * source.stride + line);
  const int64_t rows_below = source.depth - 1 - k;
  const int64_t left = rows_below * source.stride + source.lines - line;
  if (Units::kDepth == 1) return Units::across(from, nullptr, left);
  // The second row of a pair ends the source one row earlier.
  const bool paired = rows_below > 0;
  return Units::across(from, paired ? from + source.stride : nullptr,
                       paired ? left - source.stride : left);
}

// Of contiguous lines, rows of k that go to one panel before the next panel is turned to: reads
// stay near each other, and so do writes.
inline constexpr int64_t kRowsAtOnce = 8;

// Contiguous lines, to panels of kWidth lines, [unit][line]; panels are `panel_units` apart. Whole
// vectors are stored, so that up to lanes() - 1 floats behind a panel are overwritten where kWidth
// is not a multiple of lanes().
template <class Units, int64_t kWidth, int64_t kMultiple>
void pack_across(const PackSource& source, int64_t panel_units, float* to) {
  const int64_t filled = units_of(source.depth, Units::kDepth, 1);
  const int64_t units = units_of(source.depth, Units::kDepth, kMultiple);
  for (int64_t begin = 0; begin < units; begin += kRowsAtOnce) {
    float* panel_to = to;
    for (int64_t panel = 0; panel < source.lines; panel += kWidth, panel_to += panel_units) {
      for (int64_t u = begin; u < std::min(begin + kRowsAtOnce, units); ++u) {
        const int64_t next = (u + kRowsAtOnce) * Units::kDepth;
        for (int64_t i = 0; i < kWidth; i += lanes()) {
          if (next < source.depth) {
            const auto* ahead = element<Units>(source, next * source.stride + panel + i);
            prefetch_once(ahead, i);
            if (Units::kDepth == 2) prefetch_once(ahead + source.stride, i);
          }
          const bool empty = u >= filled || panel + i >= source.lines;
          store(empty ? splat(0.0f) : lines_of_unit<Units>(source, u, panel + i),
                panel_to + u * kWidth + i);
        }
      }
    }
  }
}

// Contiguous lines, to [line][unit] with kRowUnits from line to line.
template <class Units, int64_t kMultiple>
void pack_across_turned(const PackSource& source, float* to) {
  const int64_t filled = units_of(source.depth, Units::kDepth, 1);
  const int64_t units = units_of(source.depth, Units::kDepth, kMultiple);
  HWY_ALIGN Vec square[kMostLanes];
  for (int64_t line = 0; line < source.lines; line += lanes()) {
    const int64_t count = std::min(lanes(), source.lines - line);
    for (int64_t u = 0; u < units; u += lanes()) {
      for (int64_t i = 0; i < lanes(); ++i) {
        square[i] = u + i < filled ? lines_of_unit<Units>(source, u + i, line) : splat(0.0f);
      }
      transpose_square(square);
      for (int64_t i = 0; i < count; ++i) store(square[i], to + (line + i) * kRowUnits + u);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif  // TESSERA_MATRIX_PACK_INL_H_
