// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in squared_norms.cu.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/tensor_table.h"

namespace tessera::cuda {

struct SquaredTensor {
  const void* from;
  int64_t elements;
  uint32_t first_block;
  bool is_bf16;
  bool aligned;  // Whether it begins at a multiple of 16 bytes.
};

struct SquaredNormParameters {
  float* sums;  // One for each block.
  TensorTable<SquaredTensor, 1280, 32768> table;
};

}  // namespace tessera::cuda
