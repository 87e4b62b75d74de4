// SPDX-License-Identifier: Apache-2.0
#include "tests/support/spmd_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "tests/support/catch.h"

namespace tessera {
namespace {

std::vector<float> floats_of(const Executor& executor, const std::string& name, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  executor.read_state(name, std::as_writable_bytes(std::span(values)));
  return values;
}

NamedFloats weights_of(const Executor& executor, const ParameterTable& table,
                       const std::string& prefix = "") {
  NamedFloats weights;
  for (const Parameter& each : table.parameters())
    if (prefix.empty() || !each.balanced_by)  // Balanced weights have no optimizer state.
      weights[each.path] = floats_of(executor, prefix + each.path, each.type.elements());
  return weights;
}

// After one step from zero, Adam's first moment is the gradient times this factor.
NamedFloats gradients_of(const Executor& executor, const ParameterTable& table) {
  const double share = 1.0 - AdamW::HParams{}.beta1;
  NamedFloats gradients = weights_of(executor, table, "learner/m/");
  for (auto& [path, values] : gradients)
    for (float& value : values) value = static_cast<float>(value / share);
  return gradients;
}

double relative(double got, double expected) {
  return std::abs(got - expected) / std::abs(expected);
}

// A key bias adds the same constant to all scores of a query, which does not change the softmax.
// Its gradient is therefore only rounding error and cannot be compared.
bool vanishes(const std::string& path) { return path.ends_with(".key_bias"); }

// Whether the weights are bitwise equal, including NaNs.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

SpmdRun run_spmd(const SpmdCase& trial, const BeforeJoining& before_joining) {
  const std::unique_ptr<BaseTask> task = Template<BaseTask>(spmd_task(trial)).instantiate();
  const ParameterTable& table = task->model().parameters();
  TrainTrial train(*task, traced_step(trial),
                   {.mesh = trial.mesh(),
                    .pipeline = spmd_pipeline(trial),
                    .threads = trial.threads,
                    .before_joining = before_joining});
  const Executor& executor = train.executor();
  SpmdRun run;
  run.weights = weights_of(executor, table);
  for (int64_t step = 0; step < trial.steps; ++step) {
    const StepResult result = train.step(spmd_batch(trial, step), step);
    run.losses.push_back(result.loss);
    run.norms.push_back(result.grad_norm);
    if (step == 0) run.gradients = gradients_of(executor, table);
  }
  run.trained = weights_of(executor, table);
  run.sent_as_planned = train.sent_as_planned(trial.steps);
  return run;
}

double gradient_norm(const std::vector<float>& gradient) {
  double square = 0.0;
  for (const double value : gradient) square += value * value;
  return std::sqrt(square);
}

double gradient_distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double square = 0.0;
  for (size_t i = 0; i < a.size(); ++i)
    square += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
  return std::sqrt(square);
}

bool same_bits(const NamedFloats& a, const NamedFloats& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && same_bits(x.second, y.second);
  });
}

SpmdDifference difference(const SpmdRun& got, const SpmdRun& expected) {
  SpmdDifference result;
  result.same_weights = same_bits(got.weights, expected.weights);
  result.loss = relative(got.losses.at(0), expected.losses.at(0));
  const double global = expected.norms.at(0);
  result.norm = relative(got.norms.at(0), global);
  REQUIRE(got.gradients.size() == expected.gradients.size());
  for (const auto& [path, gradient] : expected.gradients) {
    const std::vector<float>& other = got.gradients.at(path);
    const double norm = gradient_norm(gradient);
    if (vanishes(path)) {
      result.vanishing = std::max({result.vanishing, norm / global, gradient_norm(other) / global});
      continue;
    }
    const double error = gradient_distance(other, gradient) / std::max(norm, 1e-6 * global);
    if (!(error <= result.gradient)) {  // Also true for NaN.
      result.gradient = error;
      result.worst = path;
    }
  }
  REQUIRE(got.losses.size() == expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step)
    result.curve = std::max(result.curve, relative(got.losses[step], expected.losses[step]));
  return result;
}

const SpmdRun& one_device_run(const SpmdCase& trial) {
  static std::map<std::string, SpmdRun> runs;
  const SpmdCase one = trial.on_one_device();
  const auto [found, is_new] =
      runs.try_emplace(fmt::format("{} {} {}", one.text(), one.steps, one.learning_rate));
  if (is_new) found->second = run_spmd(one);
  return found->second;
}

// In f32, reordering a sum of about ten thousand terms changes it by about 1e-6 of its size. Fifty
// steps at a small learning rate amplify that by less than a hundred.
void require_same_numbers(const SpmdCase& trial) {
  INFO(trial.text());
  const SpmdRun& one = one_device_run(trial);
  const SpmdRun run = run_spmd(trial);
  const SpmdDifference apart = difference(run, one);
  REQUIRE(apart.same_weights);
  REQUIRE(apart.loss <= 1e-5);
  REQUIRE(apart.norm <= 1e-5);
  INFO(apart.worst);
  REQUIRE(apart.gradient <= 1e-4);
  REQUIRE(apart.vanishing <= 1e-6);
  REQUIRE(apart.curve <= 1e-4);
  // Devices of a pipeline send different amounts.
  if (trial.stages == 1) REQUIRE(run.sent_as_planned);
}

SpmdDifference require_near_in_bf16(SpmdCase trial) {
  trial.compute = DType::kF32;
  const SpmdRun& exact = one_device_run(trial);
  trial.compute = DType::kBF16;
  INFO(trial.text());
  const SpmdRun& one = one_device_run(trial);
  const SpmdRun run = run_spmd(trial);
  REQUIRE(run.weights == one.weights);  // Weights are f32.
  // A loss is a mean over some hundred tokens: errors cancel to less than one rounding.
  const SpmdDifference apart = difference(run, one);
  REQUIRE(apart.loss <= 0x1p-9);
  REQUIRE(apart.norm <= 0x1p-7);
  // Each gradient: at most 1.5 times as far from f32 as one device's.
  for (const auto& [path, gradient] : exact.gradients) {
    INFO(path);
    const double floor = 0x1p-9 * gradient_norm(gradient) + 1e-6 * exact.norms.at(0);
    REQUIRE(gradient_distance(run.gradients.at(path), gradient) <=
            1.5 * gradient_distance(one.gradients.at(path), gradient) + floor);
  }
  // Ten steps at this rate move the loss by far more than this.
  REQUIRE(apart.curve <= 0x1p-7);
  return apart;
}

}  // namespace tessera
