// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in grouped_product.cu. The ids are sorted by group, and a place is a
// position in this order.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/sort_pass.h"
#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

// grouped_rows: where the groups begin, and for each place the row of two operands.
struct GroupedRows {
  SelectedRows selected;  // Row g is group g.
  const int32_t* order;   // The id at each place.
  int32_t* begins;        // First place of each group, then of ids of no group; the number of ids.
  int32_t* rows[2];       // Null: not needed.
  int64_t count;          // Number of ids.
  StridedSpace<2> space;  // An id -> the operands' rows.
};

// Adjacent tiles of rows that are multiplied at once, so that they share what the L2 cache holds of
// a matrix.
inline constexpr int kBandTiles = 8;

// grouped_product_…: C[order[p]] = A[rows[p]] · B[group of p]; zeros for ids of no group.
struct GroupedProduct {
  const void *a, *b;
  void* c;
  const int32_t *begins, *rows, *order;
  int32_t groups, n, k;
  bool a_aligned, b_aligned, c_aligned;  // Each line begins at a multiple of 16 bytes; c's have a
                                         // multiple of 8 elements.
};

// grouped_outer_product_…: C[g] = the sum over the places p of group g of A[a_rows[p]]ᵀ ·
// B[b_rows[p]], which is m×n.
struct GroupedOuterProduct {
  const void *a, *b;
  void* c;
  const int32_t *begins, *a_rows, *b_rows;
  int32_t groups, m, n;
  bool a_aligned, b_aligned, c_aligned;
};

// Tiles of `tile` rows are numbered so that those of group g begin at begins[g] / tile + g. No
// prefix sum is needed, and at most one tile of a group is empty.
constexpr int64_t first_tile(int64_t begin, int64_t group, int64_t tile) {
  return begin / tile + group;
}

}  // namespace tessera::cuda
