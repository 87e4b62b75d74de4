// SPDX-License-Identifier: Apache-2.0
#include "core/check/numeric_gradient.h"

#include <algorithm>
#include <cmath>

#include "core/graph/trace.h"
#include "core/passes/autodiff.h"

namespace tessera {

Graph trace_gradients(const std::map<std::string, std::string>& parameters,
                      const LossFunction& loss, const Mesh& mesh) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  NamedTensors tensors;
  std::vector<Tensor> targets;
  for (const auto& [name, type] : parameters) {
    tensors[name] = input(name, InputKind::kParameter, parse_type(type));
    targets.push_back(tensors[name]);
  }
  const Tensor value = loss(tensors);
  output("loss", value);
  const std::vector<Tensor> traced = gradients(value, targets);
  size_t next = 0;
  for (const auto& [name, type] : parameters) output("gradient of " + name, traced[next++]);
  return graph;
}

double GradientDifference::size() const { return std::abs(traced - numeric); }

GradientDifference worst_gradient(const Graph& graph, const ReferenceInputs& inputs,
                                  const Mesh& mesh) {
  constexpr double kStep = 1e-5;
  const auto outputs = evaluate(graph, inputs, mesh);
  const auto loss_at = [&](const ReferenceInputs& at) {
    return evaluate(graph, at, mesh).at("loss").values[0];
  };
  GradientDifference worst;
  for (const auto& [name, values] : inputs) {
    const auto gradient = outputs.find("gradient of " + name);
    if (gradient == outputs.end()) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      ReferenceInputs above = inputs, below = inputs;
      above[name][i] += kStep;
      below[name][i] -= kStep;
      const double slope = (loss_at(above) - loss_at(below)) / (2 * kStep);
      const GradientDifference here{name, i, gradient->second.values[i], slope};
      if (worst.name.empty() || !(here.size() <= worst.size())) worst = here;
    }
  }
  return worst;
}

double gradient_error(const Graph& graph, const Mesh& mesh) {
  return worst_gradient(graph, sample_inputs(graph), mesh).size();
}

}  // namespace tessera
