// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in norm.cu.
#pragma once

#include "plugins/cuda/kernels/rows.h"

namespace tessera::cuda {

// x, y, the addend and the sum are of the kernel's dtype, weights f32 or bf16.
struct NormParameters {
  RowShape rows;
  const void *x, *scale, *bias;  // No scale or no bias: null.
  const void* addend;            // Added to x before the norm, or null.
  void* sum;                     // x + addend. May be x, the addend or y.
  void* y;                       // May be x or the addend.
  float *rstd, *mean;            // One a row; the mean of layer_norm only.
  float inverse_width, epsilon;
  bool narrow_weights;  // Whether they are bf16.
};

struct NormGradParameters {
  RowShape rows;
  const void *x, *cotangent, *scale;
  const float *rstd, *mean;
  const void* addend;  // Added to dx after it is rounded, or null.
  void* dx;            // May be x, the cotangent or the addend.
  // Sums over the rows of each block, [blocks][width]; null where there is no such weight.
  float *scale_sums, *bias_sums;
  float inverse_width;
  bool narrow_weights;
};

// Packs of x and of the cotangent that a thread holds, with as many sums of each weight.
inline constexpr int kGradPacks = 2;
// Blocks of kRowThreads that fit in the registers of a multiprocessor.
inline constexpr int kRmsNormGradBlocks = 3, kLayerNormGradBlocks = 2;

// to[column] = the sum over blocks, for the scale (blockIdx.y 0) and the bias (1).
struct ColumnSumParameters {
  const float* sums[2];
  void* to[2];
  int64_t blocks, width;
  bool narrow;  // Whether `to` is bf16.
};
inline constexpr int kSumColumns = 32;  // Columns of a block.
inline constexpr int kSumParts = 16;    // Threads of a column.

}  // namespace tessera::cuda
