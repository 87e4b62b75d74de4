// SPDX-License-Identifier: Apache-2.0
// The vector loops of reductions: a contiguous run to one number, or a row into a row of partial
// results. They accumulate in f32, in an order that depends on the sizes only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

// kSumOfSquares is for reduce_run() only.
enum class Reduction { kSum, kMax, kSumOfSquares };

// Reduces `count` elements of an f32 or bf16 array.
float reduce_run(Reduction reduction, DType dtype, const std::byte* from, int64_t count);

// Combines rows: into[i] = into[i] + from[i], or the maximum (NaN if either is NaN).
void reduce_row(Reduction reduction, DType dtype, const std::byte* from, int64_t count,
                float* into);
inline void add_row(DType dtype, const std::byte* from, int64_t count, float* into) {
  reduce_row(Reduction::kSum, dtype, from, count, into);
}

// Writes f32 sums to an f32 or bf16 array.
void store_sums(DType dtype, const float* sums, int64_t count, std::byte* to);

}  // namespace tessera
