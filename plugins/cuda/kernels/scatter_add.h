// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in scatter_add.cu that sum rows.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/sort_pass.h"

namespace tessera::cuda {

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
