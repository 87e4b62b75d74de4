// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in rectangles.cu. They move bits in units of 1, 2, 4, 8 or 16 bytes;
// the suffix of a function is the bits of its unit. All lengths are in units.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

// Rows of a buffer that are copied from another, or filled.
struct Rectangle {
  const void* from;  // Null: filled with `pattern`.
  void* to;
  uint64_t pattern;  // The element, repeated.
  int64_t units;     // Units of all rows.
  Divider columns;
  int64_t from_pitch, to_pitch;  // From row to row.
};

// copy_rectangles_…: block (x, y) works on rectangle y.
inline constexpr int kMostRectangles = 16;
struct Rectangles {
  Rectangle list[kMostRectangles];
};

}  // namespace tessera::cuda
