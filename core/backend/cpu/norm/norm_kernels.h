// SPDX-License-Identifier: Apache-2.0
// The vector loops of RMSNorm and LayerNorm over contiguous rows. No threads, no graph.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

// Rows of `width` elements of `dtype` (f32 or bf16); weights are f32, null where there are none.
struct NormRows {
  DType dtype = DType::kF32;
  int64_t width = 0;
  float epsilon = 0.0f;
  bool centred = false;  // LayerNorm: takes the mean off.
  const void* x = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;      // May be x.
  float* rstd = nullptr;  // One a row, as is the mean.
  float* mean = nullptr;
};
void norm_rows(const NormRows& rows, int64_t begin, int64_t end);

struct NormGradRows {
  DType dtype = DType::kF32;
  int64_t width = 0;
  bool centred = false;
  const void* x = nullptr;
  const void* cotangent = nullptr;
  const float* scale = nullptr;
  const float* rstd = nullptr;
  const float* mean = nullptr;
  void* dx = nullptr;  // May be x or the cotangent.
};
// Also adds these rows' parts of the scale's and the bias's gradient to sums of `width` (or null).
void norm_grad_rows(const NormGradRows& rows, int64_t begin, int64_t end, float* dscale,
                    float* dbias);

// out[i] = rows[0][i] + rows[1][i] + …, in that order, for i in [begin, end); rows are `width`
// apart.
void add_rows(const float* rows, int64_t count, int64_t width, int64_t begin, int64_t end,
              DType dtype, void* out);

// out = x in f32.
void widen(const void* x, DType dtype, int64_t count, float* out);

}  // namespace tessera
