// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in scatter_add.cu.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

// The row of the result that update i belongs to: ids[i] - first of its batch, counted over all
// batches; `all_rows` if that is outside [0, rows).
struct SelectedRows {
  const int32_t* ids;
  int64_t first, rows, all_rows;
  Divider ids_of_batch;
};

// The updates in the order of their rows: a stable radix sort, one digit of kDigitBits a pass.
inline constexpr int kDigitBits = 8;
inline constexpr int kDigits = 1 << kDigitBits;
inline constexpr int kMostSortBlocks = 128;

// scatter_add_count, then scatter_add_place; a block sorts `part` updates, its warps one after
// another.
struct SortPass {
  SelectedRows selected;
  const int32_t* order;  // Of the pass before; null: 0, 1, 2, …
  int32_t* next_order;
  uint32_t* counts;  // [blocks][kDigits]
  int64_t updates, part;
  int shift;  // Of the digit.
};

// scatter_add_sum_f32 and so on: a block sums kSumChunk updates in order, for 256 columns at most
// (1,024 or 2,048 with accesses of 16 bytes). A row whose updates are in several chunks has a
// partial sum in each, which scatter_add_join_… adds up.
inline constexpr int kSumChunk = 64;
struct ScatterAdd {
  SelectedRows selected;
  const void* updates;  // [count columns]
  const int32_t* order;
  void* result;    // [all_rows columns], zeros.
  float* partial;  // [chunks 2 columns]: of the chunk's first row, if an earlier chunk begins it;
                   // of its last row, if this chunk begins it and a later one has more of it.
  int64_t count, columns;
  bool vectors;  // Accesses of 16 bytes.
};

}  // namespace tessera::cuda
