// SPDX-License-Identifier: Apache-2.0
// Runs a graph node by node on the CPU kernels, each value in a separate buffer, and compares it
// with the reference interpreter. It tests only kernels, without memory planning and fusion.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/devices/device.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/graph.h"

namespace tessera {

// Deterministic values for each input: floats from about N(0, 1), rounded to their dtype, integers
// in [0, integers), and bools.
ReferenceInputs random_inputs(const Graph& graph, uint64_t seed, int64_t integers = 4);

// The outputs by name, as doubles.
std::map<std::string, std::vector<double>> run_on_cpu(const Graph& graph,
                                                      const ReferenceInputs& inputs,
                                                      Device& device);

struct Tolerance {
  double relative = 2e-6;  // Share of the largest magnitude in the output.
  double absolute = 0.0;
};

// The largest difference, as "y[17]: got 1.5, expected 1.25", or "" if all are within tolerance. A
// bf16 output may differ by another half unit in the last place. NaN equals NaN.
std::string difference_from_reference(const Graph& graph, const ReferenceInputs& inputs,
                                      Device& device, Tolerance tolerance = {});

// Moves the nodes of `graph` (all elementwise) into one `fused` node.
Graph fuse_all(const Graph& graph);

}  // namespace tessera
