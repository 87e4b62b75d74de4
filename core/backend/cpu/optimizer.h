// SPDX-License-Identifier: Apache-2.0
// The arguments of the vector loop of Adam, for all its targets.
#pragma once

namespace tessera {

struct AdamStep {
  float decay1 = 0.0f, decay2 = 0.0f;  // m = decay1·m + weight1·g, v = decay2·v + weight2·g²,
  float weight1 = 0.0f, weight2 = 0.0f;  // with weight = 1 - decay, rounded once.
  float unbias1 = 1.0f, unbias2 = 1.0f;  // Bias corrections of the moments in the update.
  float epsilon = 0.0f, epsilon_root = 0.0f, weight_decay = 0.0f;
  float learning_rate = 0.0f, gradient_scale = 1.0f;
};

// Outputs may be the inputs of the same name.
struct AdamBuffers {
  const float *parameter, *first, *second, *gradient;
  float *next_parameter, *next_first, *next_second;
};

}  // namespace tessera
