// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in optimizer.cu.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/noise.h"
#include "plugins/cuda/kernels/tensor_table.h"

namespace tessera::cuda {

// One parameter of the model. Moments are f32 or bf16.
struct AdamTensor {
  const float* parameter;
  const void *first, *second;
  const float* gradient;
  float* next_parameter;
  void *next_first, *next_second;
  void* copy;  // Null, or where the next parameter is stored in bf16.
  int64_t elements;
  float weight_decay;
  uint32_t first_block;
  bool aligned;  // Operands and noise permit accesses of 4 elements.
};

// One whose moments are rounded: stochastically, or to nearest.
struct RoundedAdamTensor : AdamTensor {
  bool stochastic;
  NoiseSpace noise;  // If stochastic.
};

// What all parameters share.
struct AdamSettings {
  const float *learning_rate, *count, *gradient_scale;  // Scalars.
  const uint8_t* apply;
  double beta1, beta2, log2_beta1, log2_beta2;
  float epsilon, epsilon_root;
  bool corrected;  // Bias-corrected decay rates, as in Pax.
};

struct AdamParameters {  // Moments in f32.
  AdamSettings settings;
  TensorTable<AdamTensor, 360, 8192> table;
};

struct RoundedAdamParameters {
  AdamSettings settings;
  TensorTable<RoundedAdamTensor, 112, 8192> table;
};

}  // namespace tessera::cuda
