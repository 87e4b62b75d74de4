// SPDX-License-Identifier: Apache-2.0
#include "tasks/session/program_io.h"

#include "core/base/error.h"
#include "tasks/base_task.h"

namespace tessera {

void write_batch(Executor& executor, int program, const Batch& batch) {
  for (const Placement& input : executor.plan(program).inputs) {
    if (input.kind != InputKind::kBatch) continue;
    const auto found = batch.find(input.name.substr(names::kBatchPrefix.size()));
    CHECK(found != batch.end(), "the batch lacks {}", input.name);
    executor.write_input(program, input.name, found->second.bytes);
  }
}

std::vector<std::string> outputs_after(const Executor& executor, int program,
                                       std::string_view prefix) {
  std::vector<std::string> found;
  for (const Placement& output : executor.plan(program).outputs)
    if (output.name.starts_with(prefix)) found.push_back(output.name.substr(prefix.size()));
  return found;
}

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

}  // namespace tessera
