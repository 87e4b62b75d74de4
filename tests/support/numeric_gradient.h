// SPDX-License-Identifier: Apache-2.0
// Traced gradients against finite differences, both in double precision by the reference
// interpreter.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/check/run_graph.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/tensor.h"

namespace tessera {

using NamedTensors = std::map<std::string, Tensor>;
using LossFunction = std::function<Tensor(const NamedTensors&)>;

// A graph with one parameter an entry of `parameters` (name to type in words), output "loss" and
// an output "gradient of <name>" each.
Graph trace_gradients(const std::map<std::string, std::string>& parameters,
                      const LossFunction& loss, const Mesh& mesh = {});

// The greatest |difference| between the outputs "gradient of …" and finite differences of "loss".
double gradient_error(const Graph& graph, const Mesh& mesh = {});

}  // namespace tessera
