// SPDX-License-Identifier: Apache-2.0
#include "tasks/programs.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "core/base/error.h"

namespace tessera {
namespace {

// A program takes what its graph uses of a batch and ignores the rest.
void write_batch(Executor& executor, int program, const Batch& batch) {
  for (const Placement& input : executor.plan(program).inputs) {
    if (input.kind != InputKind::kBatch) continue;
    const auto found = batch.find(input.name.substr(names::kBatchPrefix.size()));
    CHECK(found != batch.end(), "the batch lacks {}", input.name);
    executor.write_input(program, input.name, found->second.bytes);
  }
}

void write_scalar(Executor& executor, int program, std::string_view name, auto value) {
  const auto& inputs = executor.plan(program).inputs;
  const bool used = std::any_of(inputs.begin(), inputs.end(),
                                [&](const Placement& input) { return input.name == name; });
  if (used) executor.write_input(program, name, std::as_bytes(std::span(&value, 1)));
}

std::vector<std::string> outputs_after(const Executor& executor, int program,
                                       std::string_view prefix) {
  std::vector<std::string> found;
  for (const Placement& output : executor.plan(program).outputs)
    if (output.name.starts_with(prefix)) found.push_back(output.name.substr(prefix.size()));
  return found;
}

void add_metrics(const Executor& executor, int program, const std::vector<std::string>& metrics,
                 MetricMeans* means) {
  for (const std::string& name : metrics)
    means->add(name, executor.read_scalar(program, std::string(names::kSumPrefix) + name),
               executor.read_scalar(program, std::string(names::kWeightPrefix) + name));
}

}  // namespace

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
  add_metrics(executor_, program_, metrics_, &means);
  result.metrics = means.means();
  for (const std::string& name : norms_) result.parameter_norms[name] = scalar(name);
  return result;
}

EvalProgram::EvalProgram(Executor& executor, int program)
    : executor_(executor),
      program_(program),
      metrics_(outputs_after(executor, program, names::kSumPrefix)) {}

std::map<std::string, double> EvalProgram::run(BaseInput& input, int64_t max_batches,
                                               Processes& processes) {
  MetricMeans means;
  input.reset();
  for (int64_t i = 0; max_batches < 0 || i < max_batches; ++i) {
    std::optional<Batch> batch = input.get_next();
    // All end together; a batch that cannot be read is told here too.
    if (processes.agree_max(batch ? 1 : 0, "a batch of evaluation") == 0) break;
    if (!batch) batch = padding_batch(input.specification());
    write_batch(executor_, program_, *batch);
    executor_.run(program_);
    add_metrics(executor_, program_, metrics_, &means);
    input.recycle(std::move(*batch));
  }
  input.reset();
  if (means.weight(std::string(names::kLoss)) <= 0.0)
    fail("eval dataset '{}' holds nothing to score (no label has weight)", input.name());
  std::map<std::string, double> result = means.means();
  result["weight"] = means.weight(std::string(names::kLoss));
  return result;
}

}  // namespace tessera
