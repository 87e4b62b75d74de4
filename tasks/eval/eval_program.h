// SPDX-License-Identifier: Apache-2.0
// The program that scores one batch: metric sums of the batch and, if the model provides them, of
// each example.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/runtime/executor/executor.h"
#include "inputs/base_input.h"
#include "tasks/eval_metrics.h"

namespace tessera {

// The scores of a global batch, the same in every process.
struct ScoredBatch {
  std::map<std::string, ExampleScore> totals;             // By metric, "loss" included.
  std::map<std::string, std::vector<ExampleScore>> rows;  // Empty: only totals are available.
  // Per-row fields of the batch; empty if it has none.
  std::vector<float> sample_weights;
  std::vector<float> label_bytes;
  std::vector<int32_t> sources;
};

class EvalProgram {
 public:
  EvalProgram(Executor& executor, int program);
  // A collective call; `batch` holds this process's rows.
  ScoredBatch run(const Batch& batch);
  const std::vector<std::string>& metrics() const { return metrics_; }
  bool tells_rows() const { return !row_metrics_.empty(); }

 private:
  template <typename T>
  std::vector<T> read_rows(const std::string& output) const;

  Executor& executor_;
  int program_;
  std::vector<std::string> metrics_;
  std::vector<std::string> row_metrics_;
};

}  // namespace tessera
