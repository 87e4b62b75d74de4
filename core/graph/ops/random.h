// SPDX-License-Identifier: Apache-2.0
// Random values as pure functions of (seed, path, layer index, global element index, step).
#pragma once

#include "core/graph/tensor.h"

namespace tessera {

// f32 uniform in [0, 1) of the given axes. The key is that of the traced path; `step` is an i32
// scalar. Inside `repeat` the loop's index is mixed in as the logical layer index.
Tensor random_uniform(std::vector<Axis> axes, Operand step);

// x / keep where uniform < keep, else 0. Composite, fused; mask is recomputed in the backward pass.
Tensor dropout(Operand x, double rate, Operand step);

}  // namespace tessera
