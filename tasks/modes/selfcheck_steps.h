// SPDX-License-Identifier: Apache-2.0
// The training steps of --mode=selfcheck: a small model with grouped heads, norms, dropout, a gated
// feed-forward layer, cross-entropy, AdamW and clipping.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/dtype.h"

namespace tessera {

// What some steps gave, to the bit.
struct StepBits {
  std::vector<double> losses, gradient_norms;
  std::map<std::string, std::vector<std::byte>> weights;  // After the last step, by path.
};

// A few steps computed in `compute`, from the same weights and batches each time.
StepBits selfcheck_steps(Device& device, DType compute);

// What differs first: "the loss of step 2: got 5.7, expected 5.6"; empty if nothing does.
std::string bit_difference(const StepBits& got, const StepBits& expected);

}  // namespace tessera
