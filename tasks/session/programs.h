// SPDX-License-Identifier: Apache-2.0
// The program of a training step: it wraps one program of the executor and moves host values in and
// out of it. Evaluation's is eval/eval_program.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/runtime/executor/executor.h"
#include "inputs/base_input.h"
#include "tasks/base_task.h"
#include "tasks/metric_means.h"

namespace tessera {

// What one training step gave.
struct StepResult {
  double loss = 0.0;
  double grad_norm = 0.0;
  double learning_rate = 0.0;
  bool applied = true;
  int64_t skipped = 0;
  int64_t skipped_in_a_row = 0;
  std::map<std::string, double> metrics;          // Means over the batch.
  std::map<std::string, double> parameter_norms;  // "parameter_norm/<path>", if asked for.
};

class TrainProgram {
 public:
  TrainProgram(Executor& executor, int program, const BaseTask& task);
  // The step numbered `step` (from 0) on this batch; its weights and state are updated in place.
  StepResult run(const Batch& batch, int64_t step);
  int program() const { return program_; }

 private:
  Executor& executor_;
  int program_;
  const BaseTask& task_;
  std::vector<std::string> metrics_, norms_;
};

}  // namespace tessera
