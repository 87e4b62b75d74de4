// SPDX-License-Identifier: Apache-2.0
#include "tasks/session/programs.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "tasks/session/program_io.h"

namespace tessera {

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

}  // namespace tessera
