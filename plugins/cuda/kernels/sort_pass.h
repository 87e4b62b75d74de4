// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in scatter_add.cu that sort ids (id_sort.h).
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
  const int32_t* order;  // Order of the pass before; null: 0, 1, 2, …
  int32_t* next_order;
  uint32_t* counts;  // [blocks][kDigits]
  int64_t updates, part;
  int shift;  // Shift of the digit.
};

}  // namespace tessera::cuda
