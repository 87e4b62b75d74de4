// SPDX-License-Identifier: Apache-2.0
// --mode=selfcheck: whether a device computes correctly on this machine. Compares every kernel with
// the reference interpreter over the op cases, and runs training steps of a small model, whose bits
// must not depend on the number of threads. Works for any kind of device.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/devices/device.h"

namespace tessera {

struct SelfcheckOptions {
  // Makes a device of the checked kind with so many host threads.
  std::function<std::unique_ptr<Device>(int threads)> make_device;
  int threads = 1;  // For kernels; steps run with one thread and with these (at least two).
  std::function<void(const std::string& line)> report;  // Called with each line of the report.
};

// Stops after the family of the first mismatch and describes it: op, case, operand types, element,
// got and expected values. "" if everything agrees.
std::string selfcheck(const SelfcheckOptions& options);

// A small model with grouped heads, norms, dropout, a gated feed-forward layer, cross-entropy,
// AdamW and clipping.

// The exact results of a few steps.
struct StepBits {
  std::vector<double> losses, gradient_norms;
  std::map<std::string, std::vector<std::byte>> weights;  // After the last step, by path.
};

// Runs the steps with compute dtype `compute`, always from the same weights and batches.
StepBits selfcheck_steps(Device& device, DType compute);

// The first difference: "the loss of step 2: got 5.7, expected 5.6"; "" if both are equal.
std::string bit_difference(const StepBits& got, const StepBits& expected);

}  // namespace tessera
