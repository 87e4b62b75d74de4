// SPDX-License-Identifier: Apache-2.0
#include "tests/support/numeric_gradient.h"

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

double gradient_error(const Graph& graph, const Mesh& mesh) {
  const ReferenceInputs inputs = sample_inputs(graph);
  const auto outputs = evaluate(graph, inputs, mesh);
  const auto loss_at = [&](const ReferenceInputs& at) {
    return evaluate(graph, at, mesh).at("loss").values[0];
  };
  constexpr double kStep = 1e-5;
  double worst = 0.0;
  for (const auto& [name, values] : inputs) {
    const auto gradient = outputs.find("gradient of " + name);
    if (gradient == outputs.end()) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      ReferenceInputs above = inputs, below = inputs;
      above[name][i] += kStep;
      below[name][i] -= kStep;
      const double slope = (loss_at(above) - loss_at(below)) / (2 * kStep);
      worst = std::max(worst, std::abs(slope - gradient->second.values[i]));
    }
  }
  return worst;
}

}  // namespace tessera
