// SPDX-License-Identifier: Apache-2.0
// Compares traced gradients with finite differences, both in double precision on the reference
// interpreter.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/check/run_graph.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"

namespace tessera {

using NamedTensors = std::map<std::string, Tensor>;
using LossFunction = std::function<Tensor(const NamedTensors&)>;

// Makes a graph with the given parameters (name to text of the type), the output "loss" and one
// output "gradient of <name>" per parameter.
Graph trace_gradients(const std::map<std::string, std::string>& parameters,
                      const LossFunction& loss, const Mesh& mesh = {});

// One element of a gradient, traced and by finite differences.
struct GradientDifference {
  std::string name;  // Name of the input.
  size_t element = 0;
  double traced = 0.0;
  double numeric = 0.0;
  double scale = 0.0;  // The greatest absolute element of this gradient.
  double size() const;
  double relative_size() const;  // size() / max(scale, 1).
};

// Returns the largest difference, relative to the gradient's scale, between the outputs "gradient
// of …" and central differences of the output "loss" at these inputs; the first NaN if there is
// any. Evaluates the loss twice per element.
GradientDifference worst_gradient(const Graph& graph, const ReferenceInputs& inputs,
                                  const Mesh& mesh = {});

// Returns the largest absolute difference at sample inputs; NaN if there is any.
double gradient_error(const Graph& graph, const Mesh& mesh = {});

}  // namespace tessera
