// SPDX-License-Identifier: Apache-2.0
#include "tasks/session/step_programs.h"

#include <algorithm>
#include <span>

#include "core/base/error.h"
#include "tasks/metric_means.h"

namespace tessera {
namespace {

// The names of a program's outputs that begin with `prefix`, without the prefix.
std::vector<std::string> outputs_after(const Executor& executor, int program,
                                       std::string_view prefix) {
  std::vector<std::string> found;
  for (const Placement& output : executor.plan(program).outputs)
    if (output.name.starts_with(prefix)) found.push_back(output.name.substr(prefix.size()));
  return found;
}

// The sums and weights that a program has output for these metrics.
std::map<std::string, ExampleScore> read_totals(const Executor& executor, int program,
                                                const std::vector<std::string>& metrics) {
  std::map<std::string, ExampleScore> totals;
  for (const std::string& name : metrics)
    totals[name] = {executor.read_scalar(program, std::string(names::kSumPrefix) + name),
                    executor.read_scalar(program, std::string(names::kWeightPrefix) + name)};
  return totals;
}

template <typename T>
void write_scalar(Executor& executor, int program, std::string_view name, T value) {
  if (has_input(executor, program, name))
    executor.write_input(program, name, std::as_bytes(std::span(&value, 1)));
}

}  // namespace

void write_batch(Executor& executor, int program, const Batch& batch) {
  for (const Placement& input : executor.plan(program).inputs) {
    if (input.kind != InputKind::kBatch) continue;
    const auto found = batch.find(input.name.substr(names::kBatchPrefix.size()));
    CHECK(found != batch.end(), "the batch lacks {}", input.name);
    executor.write_input(program, input.name, found->second.bytes);
  }
}

bool has_input(const Executor& executor, int program, std::string_view name) {
  const auto& inputs = executor.plan(program).inputs;
  return std::ranges::find(inputs, name, &Placement::name) != inputs.end();
}

TrainProgram::TrainProgram(Executor& executor, int program, const BaseTask& task)
    : executor_(executor),
      program_(program),
      task_(task),
      metrics_(outputs_after(executor, program, names::kSumPrefix)) {
  for (const std::string_view prefix : {names::kParameterNormPrefix, names::kGradientNormPrefix})
    for (const std::string& path : outputs_after(executor, program, prefix))
      norms_.push_back(std::string(prefix) + path);
}

StepResult TrainProgram::run(const Batch& batch, int64_t step) {
  StepResult result;
  result.learning_rate =
      task_.learner().optimizer().learning_rate(step, task_.train().num_train_steps);
  write_batch(executor_, program_, batch);
  write_scalar(executor_, program_, names::kStep, static_cast<int32_t>(step));
  write_scalar(executor_, program_, names::kLearningRate, static_cast<float>(result.learning_rate));
  executor_.run(program_);

  const auto scalar = [&](std::string_view name) { return executor_.read_scalar(program_, name); };
  result.loss = scalar(names::kLoss);
  result.grad_norm = scalar(names::kGradNorm);
  result.applied = scalar(names::kApplied) != 0.0f;
  result.skipped = static_cast<int64_t>(scalar(names::kSkipped));
  result.skipped_in_a_row = static_cast<int64_t>(scalar(names::kSkippedInARow));
  MetricMeans means;
  for (const auto& [name, total] : read_totals(executor_, program_, metrics_))
    means.add(name, total.sum, total.weight);
  result.metrics = means.means();
  for (const std::string& name : norms_) result.parameter_norms[name] = scalar(name);
  return result;
}

EvalProgram::EvalProgram(Executor& executor, int program)
    : executor_(executor),
      program_(program),
      metrics_(outputs_after(executor, program, names::kSumPrefix)),
      row_metrics_(outputs_after(executor, program, names::kRowSumPrefix)) {}

// Empty if the program has no such output.
template <typename T>
std::vector<T> EvalProgram::read_rows(const std::string& output) const {
  const auto& outputs = executor_.plan(program_).outputs;
  const auto found = std::ranges::find(outputs, output, &Placement::name);
  if (found == outputs.end()) return {};
  std::vector<T> rows(static_cast<size_t>(found->type.elements()));
  executor_.read_output(program_, output, std::as_writable_bytes(std::span(rows)));
  return rows;
}

ScoredBatch EvalProgram::run(const Batch& batch) {
  write_batch(executor_, program_, batch);
  executor_.run(program_);
  ScoredBatch scored;
  scored.totals = read_totals(executor_, program_, metrics_);
  for (const std::string& name : row_metrics_) {
    const auto sums = read_rows<float>(std::string(names::kRowSumPrefix) + name);
    const auto weights = read_rows<float>(std::string(names::kRowWeightPrefix) + name);
    CHECK(sums.size() == weights.size());
    std::vector<ExampleScore>& rows = scored.rows[name];
    for (size_t i = 0; i < sums.size(); ++i) rows.push_back({sums[i], weights[i]});
  }
  const std::string row(names::kRowPrefix);
  scored.sample_weights = read_rows<float>(row + "eval_sample_weights");
  scored.label_bytes = read_rows<float>(row + "label_bytes");
  scored.sources = read_rows<int32_t>(row + "source");
  return scored;
}

}  // namespace tessera
