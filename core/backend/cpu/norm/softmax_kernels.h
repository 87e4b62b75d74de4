// SPDX-License-Identifier: Apache-2.0
// The vector loops of softmax and its gradient over contiguous rows.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

// Rows of `width` elements of `dtype` (f32 or bf16); y may be x.
void softmax_rows(DType dtype, int64_t width, const void* x, void* y, int64_t begin, int64_t end);

// dx = y·(dy - Σ y·dy); dx may be y or dy.
void softmax_grad_rows(DType dtype, int64_t width, const void* y, const void* dy, void* dx,
                       int64_t begin, int64_t end);

}  // namespace tessera
