// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in order.cu. Arrays are [outer size inner]; a row is the elements along
// the middle axis.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

// Most threads of a block.
inline constexpr int kSortThreads = 512;
inline constexpr int kTopKThreads = 256;
inline constexpr int kSumThreads = 256;

// Keys of a row that are sorted in shared memory; longer rows are sorted in global memory.
inline constexpr int64_t kSharedKeys = 4096;

// argsort_…: the first `kept` positions of each row in the order of its values; a block sorts a
// row. top_k_…: the same positions, by a search of the row for each; 2^lanes_shift threads of a
// block (32 or all) search a row.
struct Order {
  const void* x;
  int32_t* result;
  uint64_t* keys;  // `padded` for each block, in global memory; null: in shared memory.
  int64_t rows, size, kept;
  int64_t padded;  // `size` rounded up to a power of two.
  Divider inner;
  uint32_t flip;  // All bits for descending order.
  int lanes_shift;
};

// Adjacent rows that a block sums at once, at most: 32 bytes of f32 from each position.
inline constexpr int kSumColumnsShift = 3;
// Elements of a thread at a time.
inline constexpr int kSumItems = 8;

// cumulative_sum_…: a block sums 2^columns_shift rows.
struct CumulativeSum {
  const void* x;
  void* y;  // May be x.
  int64_t size, inner;
  Divider blocks;  // Blocks of the rows of one `outer`.
  int columns_shift;
  bool exclusive, reverse;
};

}  // namespace tessera::cuda
