// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in optimizer.cu.
#pragma once

#include <cstdint>

namespace tessera::cuda {

struct AdamParameters {
  const float *parameter, *first, *second, *gradient;
  float *next_parameter, *next_first, *next_second;
  const float *learning_rate, *count, *gradient_scale;  // Scalars.
  const uint8_t* apply;
  int64_t elements;
  int64_t vectors;  // Accesses of 4 elements: 0 unless all operands are at multiples of 16 bytes.
  double beta1, beta2, log2_beta1, log2_beta2;
  float epsilon, epsilon_root, weight_decay;
  bool corrected;  // Bias-corrected decay rates, as in Pax.
};

}  // namespace tessera::cuda
