// SPDX-License-Identifier: Apache-2.0
// Products of a few rows (the tokens of a decoding step) with a large matrix: as fast as memory
// gives the matrix, which is read once. Every element is summed in an order that does not depend on
// the number of rows, nor on how columns are shared out, so that a row's result is the same bits
// whatever is computed beside it.
#pragma once

#include <cstdint>

#include "core/backend/cpu/matrix_product.h"

namespace tessera {

inline constexpr int64_t kFewRows = 16;
// Sums that stay in the first-level cache while a row-major B streams by; what lies between their
// rows, so that those do not fall on one set of it.
inline constexpr int64_t kSpanFloats = 4096;
inline constexpr int64_t kPadFloats = 16;

// Floats of scratch that few_rows_product takes.
int64_t few_rows_scratch_floats(const ProductShape& shape);

// C = A·B; at most kFewRows rows, a row-major.
void few_rows_product(const ProductShape& shape, const void* a, const void* b, void* c,
                      float* scratch);

}  // namespace tessera
