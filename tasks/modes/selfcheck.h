// SPDX-License-Identifier: Apache-2.0
// --mode=selfcheck: whether a device computes rightly on this machine. Every kernel against the
// reference interpreter over the op cases, and training steps of a small model, whose bits must not
// depend on the number of threads. Knows devices by their interface alone.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/backend/backend.h"

namespace tessera {

struct SelfcheckOptions {
  // A device of the kind that is checked, with so many threads of the host.
  std::function<std::unique_ptr<Device>(int threads)> make_device;
  int threads = 1;  // Kernels are checked with these; steps with one, and with these or two.
  std::function<void(const std::string& line)> say;  // Takes the report, line by line.
};

// Ends at the first mismatch and says what it is: op, case, operand types, element, what was got
// and expected. Empty: all is right.
std::string selfcheck(const SelfcheckOptions& options);

}  // namespace tessera
