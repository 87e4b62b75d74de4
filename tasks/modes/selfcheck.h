// SPDX-License-Identifier: Apache-2.0
// --mode=selfcheck: whether a device computes rightly on this machine. Every kernel against the
// reference interpreter over the op cases, and training steps of a small model, whose bits must not
// depend on the number of threads. Knows devices by their interface alone.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/dtype.h"

namespace tessera {

struct SelfcheckOptions {
  // A device of the kind that is checked, with so many threads of the host.
  std::function<std::unique_ptr<Device>(int threads)> make_device;
  int threads = 1;  // Kernels are checked with these; steps with one, and with these or two.
  std::function<void(const std::string& line)> report;  // Called with each line of the report.
};

// Ends at the first mismatch and says what it is: op, case, operand types, element, what was got
// and expected. Empty: all is right.
std::string selfcheck(const SelfcheckOptions& options);

// The training steps of --mode=selfcheck: a small model with grouped heads, norms, dropout, a gated
// feed-forward layer, cross-entropy, AdamW and clipping.

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
