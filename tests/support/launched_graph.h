// SPDX-License-Identifier: Apache-2.0
// Runs a graph node by node on a device of any kind, as the executor does, but without passes, and
// compares results element by element.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/devices/device.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/graph.h"
#include "tests/support/cpu_graph.h"

namespace tessera {

// The outputs of a graph by name.
using GraphResults = std::map<std::string, std::vector<double>>;

// The places of a graph's values in memory.
struct OperandPlace {
  int64_t shift = 0;      // Elements from an aligned address to each value.
  bool in_place = false;  // Result 0 of each node lies in the buffer of its operand 0.
};

GraphResults run_launched(Device& device, const Graph& graph, const ReferenceInputs& inputs,
                          const OperandPlace& placement = {});

// The results of the reference interpreter, rounded to the dtypes of the outputs.
GraphResults rounded_reference(const Graph& graph, const ReferenceInputs& inputs);

// "y[3]: got 1.5, expected 1.25" for the first element that differs by more than the tolerance,
// relative to this element; or "". NaN equals NaN.
std::string element_difference(const GraphResults& got, const GraphResults& expected,
                               Tolerance tolerance = {0.0, 0.0});

// Runs the graph of each device of the mesh. Returns how the bits of `device` differ from those of
// `other`, or "".
std::string difference_on_shards(const Graph& traced, const Mesh& mesh, Device& device,
                                 Device& other);

}  // namespace tessera
