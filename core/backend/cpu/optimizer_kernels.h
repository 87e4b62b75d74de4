// SPDX-License-Identifier: Apache-2.0
// The vector loop of Adam's update: one pass over parameter, moments and gradient.
#pragma once

#include <cstdint>

namespace tessera {

struct AdamStep {
  float decay1 = 0.0f, decay2 = 0.0f;    // What is kept of the moments;
  float fresh1 = 0.0f, fresh2 = 0.0f;    // 1 - decay, rounded once.
  float unbias1 = 1.0f, unbias2 = 1.0f;  // Multiply the moments in the update.
  float epsilon = 0.0f, epsilon_root = 0.0f, weight_decay = 0.0f;
  float learning_rate = 0.0f, gradient_scale = 1.0f;
};

// Outputs may be the inputs of the same name.
struct AdamBuffers {
  const float *parameter, *first, *second, *gradient;
  float *next_parameter, *next_first, *next_second;
};

void adam_elements(const AdamStep& step, const AdamBuffers& buffers, int64_t begin, int64_t end);

}  // namespace tessera
