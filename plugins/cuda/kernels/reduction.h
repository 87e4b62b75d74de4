// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in reduction.cu. They accumulate in f32, in an order that depends on
// the sizes only. A long reduction is divided into pieces, whose f32 results a second launch
// reduces.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

inline constexpr int kReduceShift = 8, kReduceThreads = 1 << kReduceShift;

// Numbers count elements, but in `reduced` of reduce_rows accesses of `width` elements: width is 1
// or 16 bytes of elements.
struct Reduce {
  const void* from;
  void* to;              // reduce_rows: [results pieces]; reduce_columns: [pieces results columns].
  StridedSpace<1> kept;  // The results; those of reduce_columns without the columns.
  StridedSpace<1> reduced;  // The terms of one result.
  int64_t results, terms;
  int64_t columns;  // For reduce_columns: kept elements that are contiguous.
  int tail;         // For reduce_rows: elements after the last access, if `reduced` is contiguous.
  int pieces;
  int64_t piece;  // Terms of a piece.
  // 2^lanes_shift threads have a result in reduce_rows (up to 32, or 256), a term of neighbouring
  // results in reduce_columns (up to 32).
  int lanes_shift;
  uint32_t tiles;  // Blocks of reduce_columns for all columns of a result.
  bool wide;       // `width` is 16 bytes of elements.
  bool aligned;    // Such accesses are at multiples of 16: one instruction. The sums are the same.
  bool to_f32;     // Else bf16.
};

}  // namespace tessera::cuda
