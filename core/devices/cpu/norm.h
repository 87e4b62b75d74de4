// SPDX-License-Identifier: Apache-2.0
// The arguments of the vector loops of RMSNorm and LayerNorm, for all their targets.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

// Rows of `width` elements of `dtype` (f32 or bf16); weights are f32, or null.
struct NormRows {
  DType dtype = DType::kF32;
  int64_t width = 0;
  float epsilon = 0.0f;
  bool centered = false;  // LayerNorm: subtracts the mean.
  const void* x = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;      // May be x.
  float* rstd = nullptr;  // One per row, like the mean.
  float* mean = nullptr;
};

struct NormGradRows {
  DType dtype = DType::kF32;
  int64_t width = 0;
  bool centered = false;
  const void* x = nullptr;
  const void* cotangent = nullptr;
  const float* scale = nullptr;
  const float* rstd = nullptr;
  const float* mean = nullptr;
  void* dx = nullptr;  // May be x or the cotangent.
};
}  // namespace tessera
