// SPDX-License-Identifier: Apache-2.0
// The executor's programs of one step as functions of host values: a batch and scalars go in by
// name, metrics come out. TrainProgram updates weights, EvalProgram scores a batch. The programs of
// decoding are in tasks/run/decode/decode_program.h.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/executor/executor.h"
#include "inputs/base_input.h"
#include "tasks/run/session/metric_outputs.h"
#include "tasks/task/base_task.h"
#include "tasks/task/eval_metrics.h"
#include "tasks/task/histogram.h"
#include "tasks/task/metric_means.h"

namespace tessera {

// Writes the fields of the batch that the program's graph uses; ignores the others.
void write_batch(Executor& executor, int program, const Batch& batch);

// Whether the program has the input: a graph may not use all that its kind of step offers.
bool has_input(const Executor& executor, int program, std::string_view name);

// The results of one training step.
struct StepResult {
  double loss = 0.0;
  double grad_norm = 0.0;
  double learning_rate = 0.0;
  std::map<std::string, double> rule_rates;  // "learning_rate/<name>" of each optimizer rule.
  bool applied = true;
  int64_t skipped = 0;
  int64_t skipped_in_a_row = 0;
  std::map<std::string, double> metrics;  // Means over the batch.
  std::map<std::string, std::vector<double>> histograms;
  std::map<std::string, double> parameter_norms;  // "parameter_norm/<path>", if enabled.
  std::vector<Inspected> inspected;               // If the program inspects.
  std::map<std::string, Bins> weight_histograms;  // "weights/<path>", …; if the program has them.
};

class TrainProgram {
 public:
  TrainProgram(Executor& executor, int program, const BaseTask& task);
  // Starts step number `step` (from 0) on this batch, which the caller may then change. The step
  // updates weights and state in place.
  void start(const Batch& batch, int64_t step);
  // The results of the oldest step that was started (Executor::finish).
  StepResult finish();
  StepResult run(const Batch& batch, int64_t step) {
    start(batch, step);
    return finish();
  }
  int program() const { return program_; }

 private:
  Executor& executor_;
  int program_;
  const BaseTask& task_;
  MetricOutputs metrics_;
  std::vector<std::string> norms_;
  std::vector<std::string> scalars_;  // The norms and all other scalars, but not the metrics.
  std::vector<std::string> histograms_;
  std::vector<std::string> outputs_;  // The scalars, the metrics, the histograms.
  std::deque<int64_t> steps_;         // Those that were started and not finished.
};

// The scores of a global batch, the same in every process.
struct ScoredBatch {
  MetricMeans totals;                                     // All metrics, "loss" included.
  std::map<std::string, std::vector<ExampleScore>> rows;  // Empty: only totals are available.
  std::vector<float> log_probs;  // One per label, row by row; empty if the program has none.
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
  // The names of all metrics, and of those that each example has; sorted.
  std::vector<std::string> metrics() const { return metrics_.names(); }
  const std::vector<std::string>& row_metrics() const { return row_metrics_; }

 private:
  template <typename T>
  std::vector<T> read_output(const std::string& output) const;

  Executor& executor_;
  int program_;
  MetricOutputs metrics_;
  std::vector<std::string> row_metrics_;
};

}  // namespace tessera
