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

// Rows of a batch that this process's devices hold.
int64_t local_rows(const Executor& executor, int program) {
  int64_t rows = 0;
  for (const Placement& input : executor.plan(program).inputs)
    if (input.kind == InputKind::kBatch && rows == 0)
      for (const RowRange& range : executor.input_rows(program, input.name)) rows += range.size();
  return rows;
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

LogitsProgram::LogitsProgram(Executor& executor, int program, Batch batch)
    : executor_(executor), program_(program), batch_(std::move(batch)) {
  const int64_t rows = local_rows(executor, program);
  for (auto& [name, array] : batch_) {
    array.shape[0] = rows;
    int64_t bytes = dtype_bytes(array.dtype);
    for (const int64_t size : array.shape) bytes *= size;
    array.bytes.assign(static_cast<size_t>(bytes), std::byte{0});
  }
  for (const Placement& output : executor.plan(program).outputs)
    if (output.name == names::kLogits) logits_.resize(static_cast<size_t>(output.type.elements()));
}

int64_t LogitsProgram::window() const { return batch_.at("ids").shape[1]; }

std::vector<float> LogitsProgram::next_token(const std::vector<int32_t>& ids) {
  CHECK(!ids.empty());
  const size_t used = std::min(ids.size(), static_cast<size_t>(window()));
  const auto fill = [&](const char* name, auto value_at) {
    const auto found = batch_.find(name);
    if (found == batch_.end()) return;
    auto* values = found->second.data<int32_t>();
    for (int64_t row = 0; row < found->second.shape[0]; ++row, values += window())
      for (size_t i = 0; i < used; ++i) values[i] = value_at(i);
  };
  fill("ids", [&](size_t i) { return ids[ids.size() - used + i]; });
  fill("segment_ids", [](size_t) { return 1; });
  fill("segment_pos", [](size_t i) { return static_cast<int32_t>(i); });
  write_batch(executor_, program_, batch_);
  executor_.run(program_);
  executor_.read_output(program_, names::kLogits, std::as_writable_bytes(std::span(logits_)));
  const size_t vocab = logits_.size() / static_cast<size_t>(window());
  const auto last = logits_.begin() + static_cast<int64_t>((used - 1) * vocab);
  return {last, last + static_cast<int64_t>(vocab)};
}

}  // namespace tessera
