// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in data_movement.cu. They move bits in units of 1, 2, 4, 8 or 16 bytes;
// the suffix of a function is the bits of its unit. All lengths and strides are in units.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

// transpose_…: planes of `rows` x `columns` elements. Element (r, c) is r + c * from_step in the
// source's plane and r * to_step + c in the destination's. A block transposes one tile.
struct Transpose {
  const void* from;
  void* to;
  int64_t rows, columns;
  int64_t from_step, to_step;
  uint32_t row_tiles, column_tiles;
  StridedSpace<2> planes;
};

// The side of a tile of transpose_b32 and so on, and of transpose_vectors_…, whose accesses are of
// 16 bytes.
constexpr int transpose_tile(int element_bytes, bool vectors) {
  return vectors ? 128 / element_bytes : 32;
}

}  // namespace tessera::cuda
