// SPDX-License-Identifier: Apache-2.0
// The vector loops of rotary embedding: cosines and sines of one position, and rows turned by them.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

// cosine[i], sine[i] of position·frequency[i]; the angle is reduced in double, so that far
// positions are as exact as near ones.
void rotary_table(int64_t pairs, const double* frequency, int32_t position, float* cosine,
                  float* sine);

// Turns rows of 2·pairs elements of `dtype` (f32 or bf16) by a table; y may be x.
void rotary_rows(DType dtype, bool interleaved, int64_t pairs, const float* cosine,
                 const float* sine, const void* x, void* y, int64_t begin, int64_t end);

}  // namespace tessera
