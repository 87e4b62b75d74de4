// SPDX-License-Identifier: Apache-2.0
// Runs the kernel of every composite node of a trace and compares the results with the
// reference interpreter, which runs the decomposition in double precision.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/check/run_graph.h"
#include "core/devices/device.h"
#include "core/graph/graph.h"

namespace tessera {

struct KernelCheck {
  double tolerance_f32 = 2e-5;   // Relative to the largest magnitude in the result, at least 1e-3.
  double tolerance_bf16 = 1e-2;  // Rounding to bf16 costs up to 4e-3.
  int64_t max_integer = 1;       // Integers are drawn from [0, max_integer).
  double spread = 1.0;           // Standard deviation of floating inputs.
  std::map<std::string, std::vector<double>> given;  // Inputs with fixed values, by name.
  Device* device = nullptr;                          // Null: a CPU device with `threads` threads.
  int threads = 2;
  int64_t offset = 0;  // Elements from a multiple of 64 bytes to each operand, as of a view.
};

// Returns "" or the first mismatch: op, result, element and both values. Inputs are drawn at random
// and rounded to their dtypes. In-place execution is checked too where the kernel allows it, and
// that a second run gives the same bits.
std::string kernel_mismatch(const Graph& graph, const KernelCheck& check = {});

}  // namespace tessera
