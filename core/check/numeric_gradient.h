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
  double scale = 0.0;  // The greatest absolute element of this gradient.
  double size() const;
  double relative_size() const;  // To the scale, or to 1 if that is greater.
};

// The difference between the outputs "gradient of …" and central differences of the output "loss",
// at these inputs, that is greatest relative to its gradient's scale; the first that is NaN if any
// is. Two evaluations of the loss for each element.
GradientDifference worst_gradient(const Graph& graph, const ReferenceInputs& inputs,
                                  const Mesh& mesh = {});

// The greatest absolute difference, at sample inputs; NaN if any is.
double gradient_error(const Graph& graph, const Mesh& mesh = {});

}  // namespace tessera
