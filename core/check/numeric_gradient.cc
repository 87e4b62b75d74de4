// SPDX-License-Identifier: Apache-2.0
#include "core/check/numeric_gradient.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/compile/rewrite.h"
#include "core/compile/simplify.h"
#include "core/graph/trace.h"

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
double GradientDifference::relative_size() const { return size() / std::max(1.0, scale); }

namespace {

// Returns the graph with the output "loss" only, without dead nodes.
Graph loss_of(const Graph& graph) {
  Rewriter rewriter(graph);
  rewriter.copy_inputs();
  for (const NodeId id : graph.nodes().ids()) rewriter.copy_node(id);
  const GraphOutput* const loss = graph.find_output("loss");
  CHECK(loss != nullptr, "no output 'loss'");
  rewriter.to().add_output("loss", rewriter.at(loss->value));
  return dce(rewriter.to());
}

double greatest(const std::vector<double>& values) {
  double most = 0.0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

// Calls `visit` with each element of each gradient until it returns false.
template <typename Visit>
void visit_differences(const Graph& graph, const ReferenceInputs& inputs, const Mesh& mesh,
                       Visit visit) {
  constexpr double kStep = 1e-5;
  const auto outputs = evaluate(graph, inputs, mesh);
  const Graph loss = loss_of(graph);
  ReferenceInputs moved = inputs;
  for (const auto& [name, values] : inputs) {
    const auto gradient = outputs.find("gradient of " + name);
    if (gradient == outputs.end()) continue;
    const double scale = greatest(gradient->second.values);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto loss_at = [&, &name = name](double value) {
        moved[name][i] = value;
        return evaluate(loss, moved, mesh).at("loss").values[0];
      };
      const double rise = loss_at(values[i] + kStep) - loss_at(values[i] - kStep);
      moved[name][i] = values[i];
      if (!visit({name, i, gradient->second.values[i], rise / (2 * kStep), scale})) return;
    }
  }
}

}  // namespace

GradientDifference worst_gradient(const Graph& graph, const ReferenceInputs& inputs,
                                  const Mesh& mesh) {
  GradientDifference worst;
  visit_differences(graph, inputs, mesh, [&](GradientDifference here) {
    const bool is_number = !std::isnan(here.relative_size());
    if (worst.name.empty() || !is_number || here.relative_size() > worst.relative_size())
      worst = std::move(here);
    return is_number;  // NaN counts as the largest error.
  });
  return worst;
}

double gradient_error(const Graph& graph, const Mesh& mesh) {
  double most = 0.0;
  visit_differences(graph, sample_inputs(graph), mesh, [&](const GradientDifference& here) {
    if (!(here.size() <= most)) most = here.size();
    return !std::isnan(most);
  });
  return most;
}

}  // namespace tessera
