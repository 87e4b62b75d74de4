// SPDX-License-Identifier: Apache-2.0
// Runs a graph node by node on the CPU kernels, each value in a buffer of its own, and compares it
// with the reference interpreter. No planner, no fusion: it tests kernels alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/backend/backend.h"
#include "core/backend/reference/interpreter.h"
#include "core/graph/graph.h"

namespace tessera {

// Values for each input, the same on every run: floats about N(0, 1) that their dtype can hold,
// integers in [0, integers), truth values.
ReferenceInputs random_inputs(const Graph& graph, uint64_t seed, int64_t integers = 4);

// The outputs by name, as doubles.
std::map<std::string, std::vector<double>> run_on_cpu(const Graph& graph,
                                                      const ReferenceInputs& inputs,
                                                      Device& device);

struct Tolerance {
  double relative = 2e-6;  // Of the largest magnitude in the output.
  double absolute = 0.0;
};

// What differs most: "y[17]: got 1.5, expected 1.25", or "" if all is within tolerance. An output
// in bf16 may be off by half a unit of its own besides. NaN equals NaN.
std::string difference_from_reference(const Graph& graph, const ReferenceInputs& inputs,
                                      Device& device, Tolerance tolerance = {});

// Puts the nodes of `graph` (all elementwise) into one `fused` node.
Graph fuse_all(const Graph& graph);

}  // namespace tessera
