// SPDX-License-Identifier: Apache-2.0
#include "tasks/testing/tested_layer.h"

#include <cmath>
#include <ranges>

#include "core/base/error.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/summaries.h"

namespace tessera {
namespace {

Tensor operand(const std::string& name, const std::string& text) {
  const Type type = apply_rules(traced_rules().activations, traced_mesh(), parse_type(text));
  return input(name, InputKind::kBatch, type).named(name);
}

const std::string kLossPrefix = "auxiliary loss ", kMetricPrefix = "metric ";

// A loss in which every element of the result has a different weight.
Tensor weighted_sum(const Tensor& result) {
  const Tensor weights = input("weights of the loss", InputKind::kBatch, result.type());
  return place(reduce_sum(result * weights));
}

}  // namespace

TestedLayer::TestedLayer(OperandTypes operands, LayerSetting setting)
    : operands_(std::move(operands)), setting_(std::move(setting)) {}

Graph TestedLayer::traced(bool with_gradients, const Mesh& mesh) const {
  Graph graph;
  const AxisRules rules = make_rules(setting_.rules);
  const TraceScope trace(graph, mesh, rules);
  NamedTensors in;
  for (const auto& [name, type] : operands_) in[name] = operand(name, type);
  Features features;
  features.tensors.insert(in.begin(), in.end());
  features.mode = setting_.mode;
  features.step = operand("step", "i32[\"\"]");
  const std::vector<Tensor> weights = parameter_inputs(*table_);
  const FpropScope scope(weights, features);
  const SummaryScope summaries;
  const Tensor result = apply_(in);
  output("result", result);
  for (const auto& [name, loss] : summaries.losses()) output(kLossPrefix + name, loss);
  for (const auto& [name, metric] : summaries.metrics())
    output(kMetricPrefix + name, metric.sum / metric.weight);
  if (!with_gradients) return graph;

  Tensor loss = weighted_sum(result);
  for (const auto& [name, each] : summaries.losses())
    loss = loss + (each.type().rank() > 0 ? reduce_sum(each) : each);
  output("loss", loss);
  std::vector<std::string> names = this->weights();
  std::vector<Tensor> targets = weights;
  for (const auto& [name, tensor] : in) {
    if (!is_floating(tensor.dtype())) continue;
    names.push_back(name);
    targets.push_back(tensor);
  }
  const std::vector<Tensor> slopes = gradients(loss, targets);
  for (size_t i = 0; i < names.size(); ++i) output("gradient of " + names[i], slopes[i]);
  return graph;
}

ReferenceInputs TestedLayer::values_for(const Graph& graph) const {
  ReferenceInputs values = sample_inputs(graph);
  for (const auto& [name, given] : setting_.values) {
    const auto sample = values.find(name);
    if (sample == values.end()) {
      const auto names = std::views::keys(values);
      fail("the layer has no weight or operand '{}'{}", name,
           did_you_mean(name, {names.begin(), names.end()}));
    }
    if (sample->second.size() != given.size())
      fail("'{}' has {} elements, got {}", name, sample->second.size(), given.size());
    sample->second = given;
  }
  return values;
}

std::vector<double> TestedLayer::result() const { return outputs("").at("result"); }

std::map<std::string, std::vector<double>> TestedLayer::losses() const {
  return outputs(kLossPrefix);
}

std::map<std::string, std::vector<double>> TestedLayer::metrics() const {
  return outputs(kMetricPrefix);
}

// Outputs whose names begin with the prefix, by the rest of their names.
std::map<std::string, std::vector<double>> TestedLayer::outputs(const std::string& prefix) const {
  const Mesh mesh = planned_mesh(setting_.mesh, 1);
  const Graph graph = traced(false, mesh);
  std::map<std::string, std::vector<double>> found;
  for (const auto& [name, array] : evaluate(graph, values_for(graph), mesh))
    if (name.starts_with(prefix)) found[name.substr(prefix.size())] = array.values;
  return found;
}

void TestedLayer::check_gradients(double tolerance) const {
  const Mesh mesh = planned_mesh(setting_.mesh, 1);
  const Graph graph = traced(true, mesh);
  const ReferenceInputs values = values_for(graph);
  const GradientDifference worst = worst_gradient(graph, values, mesh);
  if (worst.relative_size() <= tolerance) return;
  fail("element {} of the gradient of '{}' is {}, but a finite difference gives {}", worst.element,
       worst.name, worst.traced, worst.numeric);
}

std::vector<std::string> TestedLayer::weights() const {
  std::vector<std::string> paths;
  for (const Parameter& each : table_->parameters()) paths.push_back(each.path);
  return paths;
}

int run_layer_tests(const std::vector<std::pair<std::string, std::function<void()>>>& checks) {
  int code = 0;
  for (const auto& [name, check] : checks) {
    std::string problem;
    try {
      check();
    } catch (const std::exception& error) {
      problem = error_text(error);
      code = 1;
    }
    fmt::print("{}: {}{}{}\n", problem.empty() ? "passed" : "FAILED", name,
               problem.empty() ? "" : ": ", problem);
  }
  return code;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                 double tolerance) {
  if (got.size() != expected.size())
    fail("got {} elements, expected {}", got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - expected[i]) <= tolerance))
      fail("element {} is {}, expected {}", i, got[i], expected[i]);
}

}  // namespace tessera
