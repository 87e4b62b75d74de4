// SPDX-License-Identifier: Apache-2.0
#include "tasks/eval/eval_program.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "tasks/base_task.h"
#include "tasks/session/program_io.h"

namespace tessera {

EvalProgram::EvalProgram(Executor& executor, int program)
    : executor_(executor),
      program_(program),
      metrics_(outputs_after(executor, program, names::kSumPrefix)),
      row_metrics_(outputs_after(executor, program, names::kRowSumPrefix)) {}

// Empty if the program has no such output.
template <typename T>
std::vector<T> EvalProgram::read_rows(const std::string& output) const {
  const auto& outputs = executor_.plan(program_).outputs;
  const auto found = std::find_if(outputs.begin(), outputs.end(),
                                  [&](const Placement& each) { return each.name == output; });
  if (found == outputs.end()) return {};
  std::vector<T> rows(static_cast<size_t>(found->type.elements()));
  executor_.read_output(program_, output, std::as_writable_bytes(std::span(rows)));
  return rows;
}

ScoredBatch EvalProgram::run(const Batch& batch) {
  write_batch(executor_, program_, batch);
  executor_.run(program_);
  const auto scalar = [&](std::string_view prefix, const std::string& name) -> double {
    return executor_.read_scalar(program_, std::string(prefix) + name);
  };
  ScoredBatch scored;
  for (const std::string& name : metrics_)
    scored.totals[name] = {scalar(names::kSumPrefix, name), scalar(names::kWeightPrefix, name)};
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
