// SPDX-License-Identifier: Apache-2.0
// The coefficients of a step of Adam, for all vector targets of its loop.
#pragma once

#include "core/base/dtype.h"

namespace tessera {

struct AdamStep {
  float decay1 = 0.0f, decay2 = 0.0f;  // m = decay1·m + weight1·g, v = decay2·v + weight2·g²,
  float weight1 = 0.0f, weight2 = 0.0f;  // with weight = 1 - decay, rounded once.
  float unbias1 = 1.0f, unbias2 = 1.0f;  // Bias corrections of the moments in the update.
  float epsilon = 0.0f, epsilon_root = 0.0f, weight_decay = 0.0f;
  float learning_rate = 0.0f, gradient_scale = 1.0f;
  DType first = DType::kF32, second = DType::kF32;  // Dtypes of the moments.
};

}  // namespace tessera
