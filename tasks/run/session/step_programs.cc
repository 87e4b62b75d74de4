// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/session/step_programs.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <type_traits>

#include "core/base/error.h"

namespace tessera {
namespace {

template <typename T>
void write_scalar(Executor& executor, int program, std::string_view name, T value) {
  if (has_input(executor, program, name))
    executor.write_input(program, name, std::as_bytes(std::span(&value, 1)));
}

}  // namespace

void write_batch(Executor& executor, int program, const Batch& batch) {
  for (const ProgramArray& input : executor.inputs(program)) {
    if (input.kind != InputKind::kBatch) continue;
    const auto found = batch.find(input.name.substr(names::kBatchPrefix.size()));
    if (found == batch.end())
      fail("the graph of the task reads {}, which no batch has", input.name);
    executor.write_input(program, input.name, found->second.bytes);
  }
}

bool has_input(const Executor& executor, int program, std::string_view name) {
  const auto& inputs = executor.inputs(program);
  return std::ranges::find(inputs, name, &ProgramArray::name) != inputs.end();
}

TrainProgram::TrainProgram(Executor& executor, int program, const BaseTask& task)
    : executor_(executor),
      program_(program),
      task_(task),
      metrics_(executor, program),
      histograms_(outputs_after(executor, program, names::kHistogramPrefix)) {
  for (const std::string_view prefix : {names::kParameterNormPrefix, names::kGradientNormPrefix})
    for (const std::string& path : outputs_after(executor, program, prefix))
      norms_.push_back(std::string(prefix) + path);
  for (const std::string_view name :
       {names::kLoss, names::kGradNorm, names::kApplied, names::kSkipped, names::kSkippedInARow})
    scalars_.emplace_back(name);
  scalars_.insert(scalars_.end(), norms_.begin(), norms_.end());
  outputs_ = scalars_;
  outputs_.insert(outputs_.end(), metrics_.outputs().begin(), metrics_.outputs().end());
  for (const std::string& name : histograms_)
    outputs_.push_back(std::string(names::kHistogramPrefix) + name);
}

void TrainProgram::start(const Batch& batch, int64_t step) {
  write_batch(executor_, program_, batch);
  write_scalar(executor_, program_, names::kStep, static_cast<int32_t>(step));
  for (const auto& [rule, optimizer, input] : task_.learner().optimizers())
    write_scalar(executor_, program_, input,
                 static_cast<float>(optimizer->learning_rate(step, task_.train().num_train_steps)));
  executor_.start(program_, outputs_);
  steps_.push_back(step);
}

StepResult TrainProgram::finish() {
  const std::vector<double> values = executor_.finish();
  std::map<std::string, double, std::less<>> by_name;
  for (size_t i = 0; i < scalars_.size(); ++i) by_name[scalars_[i]] = values[i];
  const auto scalar = [&](std::string_view name) { return by_name.find(name)->second; };
  StepResult result;
  const Learner& learner = task_.learner();
  const int64_t step = steps_.front(), steps = task_.train().num_train_steps;
  steps_.pop_front();
  result.learning_rate = learner.optimizer().learning_rate(step, steps);
  for (const auto& [rule, optimizer, input] : learner.optimizers())
    if (!rule.empty())
      result.rule_rates["learning_rate/" + rule] = optimizer->learning_rate(step, steps);
  result.loss = scalar(names::kLoss);
  result.grad_norm = scalar(names::kGradNorm);
  result.applied = scalar(names::kApplied) == 1.0;
  result.skipped = static_cast<int64_t>(scalar(names::kSkipped));
  result.skipped_in_a_row = static_cast<int64_t>(scalar(names::kSkippedInARow));
  const auto of_metrics = std::span(values).subspan(scalars_.size(), metrics_.elements());
  size_t at = scalars_.size() + metrics_.elements();
  for (const std::string& name : histograms_) {
    result.weight_histograms[name] =
        magnitude_bins(std::span(values).subspan(at, kMagnitudeCounts));
    at += kMagnitudeCounts;
  }
  const MetricMeans totals = metrics_.totals(of_metrics);
  result.inspected = metrics_.inspected(of_metrics);
  result.metrics = totals.means();
  result.histograms = totals.histograms();
  for (const std::string& name : norms_) result.parameter_norms[name] = scalar(name);
  return result;
}

EvalProgram::EvalProgram(Executor& executor, int program)
    : executor_(executor),
      program_(program),
      metrics_(executor, program),
      row_metrics_(outputs_after(executor, program, names::kRowSumPrefix)) {}

// Empty if the program has no such output.
template <typename T>
std::vector<T> EvalProgram::read_output(const std::string& output) const {
  const auto& outputs = executor_.outputs(program_);
  const auto found = std::ranges::find(outputs, output, &ProgramArray::name);
  if (found == outputs.end()) return {};
  if constexpr (std::is_floating_point_v<T>) {
    const std::vector<double> values = executor_.read_floats(program_, output);
    return {values.begin(), values.end()};
  } else {
    std::vector<T> elements(static_cast<size_t>(found->type.elements()));
    executor_.read_output(program_, output, std::as_writable_bytes(std::span(elements)));
    return elements;
  }
}

ScoredBatch EvalProgram::run(const Batch& batch) {
  write_batch(executor_, program_, batch);
  executor_.run(program_);
  ScoredBatch scored;
  std::vector<double> elements;
  for (const std::string& output : metrics_.outputs())
    std::ranges::copy(read_output<double>(output), std::back_inserter(elements));
  scored.totals = metrics_.totals(elements);
  for (const std::string& name : row_metrics_) {
    const auto sums = read_output<float>(std::string(names::kRowSumPrefix) + name);
    const auto weights = read_output<float>(std::string(names::kRowWeightPrefix) + name);
    CHECK(sums.size() == weights.size());
    std::vector<ExampleScore>& rows = scored.rows[name];
    for (size_t i = 0; i < sums.size(); ++i) rows.push_back({sums[i], weights[i]});
  }
  scored.log_probs = read_output<float>(std::string(names::kLogProbs));
  const std::string row(names::kRowPrefix);
  scored.sample_weights = read_output<float>(row + "eval_sample_weights");
  scored.label_bytes = read_output<float>(row + "label_bytes");
  scored.sources = read_output<int32_t>(row + "source");
  return scored;
}

}  // namespace tessera
