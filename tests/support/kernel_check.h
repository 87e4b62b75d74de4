// SPDX-License-Identifier: Apache-2.0
// Runs every composite node of a trace by its CPU kernel and compares the results with the
// reference interpreter's, which runs the decomposition in double precision.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/tensor.h"

namespace tessera {

struct KernelCheck {
  double tolerance_f32 = 2e-5;   // Relative to the largest magnitude in the result, at least 1e-3.
  double tolerance_bf16 = 1e-2;  // Half of the spacing of bf16 is 4e-3.
  int64_t max_integer = 1;       // Integers are drawn from [0, max_integer).
  double spread = 1.0;           // Standard deviation of floating inputs.
  std::map<std::string, std::vector<double>> given;  // Inputs not drawn, by name.
  int threads = 2;
};

// Traces `node`'s gradient with a cotangent (a new graph input "dy") like its first result.
std::vector<Tensor> traced_gradient(Graph& graph, const Node& node);

// Returns "" or what disagrees: op, result, element, both values. The graph's inputs are drawn at
// random, rounded to their dtypes. Checks in-place operation too, where the kernel allows it.
std::string kernel_mismatch(const Graph& graph, const KernelCheck& check = {});

}  // namespace tessera
