// SPDX-License-Identifier: Apache-2.0
// Compiles a traced graph and runs it once on a device, from doubles to doubles.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "core/devices/device.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/graph.h"
#include "core/runtime/executor/executor.h"

namespace tessera {

// Returns every output by name, including updates. Inputs are rounded to their dtypes first.
std::map<std::string, std::vector<double>> run_graph(const Graph& graph,
                                                     const ReferenceInputs& inputs, Device& device,
                                                     const CompileOptions& options = {});

// Returns smooth, distinct values for every input of the graph, the same on every run; integers
// count up from 0, modulo `ids` (bools: modulo 2).
ReferenceInputs sample_inputs(const Graph& graph, int ids = 3);

// Traces `node`'s gradient. The cotangent is a new graph input "dy" with the type of the first
// result.
std::vector<Tensor> traced_gradient(Graph& graph, const Node& node);

// Return values as the bytes of a dtype, and rounded to the dtype of `type`.
std::vector<std::byte> encoded(DType dtype, const std::vector<double>& values);
std::vector<double> rounded(const Type& type, const std::vector<double>& values);

// Returns the inputs rounded to their dtypes.
ReferenceInputs rounded(const Graph& graph, ReferenceInputs inputs);

}  // namespace tessera
