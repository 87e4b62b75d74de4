// SPDX-License-Identifier: Apache-2.0
// How kernels that work on rows of a matrix divide them among threads. Shared by host and device.
#pragma once

#include <cstdint>

namespace tessera::cuda {

// Threads of a block of a row kernel: for one long row, or several short ones.
inline constexpr int kRowThreads = 256;
// Packs of a row (of 16 bytes, where operands are aligned) that a thread keeps in registers. Wider
// rows are read again by each pass, mostly from the L2 cache.
inline constexpr int kHeldPacks = 4;

struct RowShape {
  int64_t count = 0, width = 0;
  int lanes = 1;  // Threads of a row: a power of two. Beyond 32 they are the whole block.
  int lane_bits = 0;
};

// Short rows have a pack a thread, up to a warp, which needs no barrier; then up to `held` packs.
// `pack`: elements that a thread reads at a time.
constexpr RowShape row_shape(int64_t count, int64_t width, int pack, int held) {
  const int64_t packs = (width + pack - 1) / pack;
  int lanes = 1, lane_bits = 0;
  while (lanes < kRowThreads && lanes < (lanes < 32 ? packs : (packs + held - 1) / held))
    lanes *= 2, ++lane_bits;
  return {count, width, lanes, lane_bits};
}
constexpr int row_threads(const RowShape& rows) {
  return rows.lanes > 32 ? rows.lanes : kRowThreads;
}
constexpr int64_t row_blocks(const RowShape& rows) {
  const int64_t rows_of_block = row_threads(rows) / rows.lanes;
  return (rows.count + rows_of_block - 1) / rows_of_block;
}

}  // namespace tessera::cuda
