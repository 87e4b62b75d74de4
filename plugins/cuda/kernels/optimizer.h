// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernel in optimizer.cu.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/tensor_table.h"

namespace tessera::cuda {

// One parameter of the model.
struct AdamTensor {
  const float *parameter, *first, *second, *gradient;
  float *next_parameter, *next_first, *next_second;
  void* copy;  // Null, or where the next parameter is stored in bf16.
  int64_t elements;
  float weight_decay;
  uint32_t first_block;
  bool aligned;  // All operands are at multiples of 16 bytes: accesses of 4 elements.
};

struct AdamParameters {
  const float *learning_rate, *count, *gradient_scale;  // Scalars.
  const uint8_t* apply;
  double beta1, beta2, log2_beta1, log2_beta2;
  float epsilon, epsilon_root;
  bool corrected;  // Bias-corrected decay rates, as in Pax.
  TensorTable<AdamTensor, 360, 8192> table;
};

}  // namespace tessera::cuda
