// SPDX-License-Identifier: Apache-2.0
// The program that scores a batch: the sums of its metrics, and where the model can tell them the
// scores of each example. What they come to over a dataset is added up elsewhere.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/runtime/executor/executor.h"
#include "inputs/base_input.h"
#include "tasks/eval_metrics.h"

namespace tessera {

// A global batch as it was scored, alike in every process.
struct ScoredBatch {
  std::map<std::string, ExampleScore> totals;             // By metric, "loss" among them.
  std::map<std::string, std::vector<ExampleScore>> rows;  // Empty: the model tells totals alone.
  // What the batch says of its rows; empty where it says nothing.
  std::vector<float> sample_weights;
  std::vector<float> label_bytes;
  std::vector<int32_t> sources;
};

class EvalProgram {
 public:
  EvalProgram(Executor& executor, int program);
  // `batch` holds this process's rows. All processes call it together.
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
