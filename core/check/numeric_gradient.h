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

// An element of a gradient: as traced, and as a finite difference.
struct GradientDifference {
  std::string name;  // Of the input.
  size_t element = 0;
  double traced = 0.0;
  double numeric = 0.0;
  double size() const;
};

// The greatest difference between the outputs "gradient of …" and central differences of the output
// "loss", at these inputs. Two evaluations of the graph for each element.
GradientDifference worst_gradient(const Graph& graph, const ReferenceInputs& inputs,
                                  const Mesh& mesh = {});

// Its size, at sample inputs.
double gradient_error(const Graph& graph, const Mesh& mesh = {});

}  // namespace tessera
