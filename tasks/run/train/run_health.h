// SPDX-License-Identifier: Apache-2.0
// Checks and reports the values of a run's steps: whether the run has failed although every step
// ran, because too many steps were skipped or a loss is not finite; spikes; the batches of skipped
// steps; what layers inspect; how much memory its process uses; and settings of the learner that
// are valid but rarely intended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "tasks/run/log/console.h"
#include "tasks/run/log/run_log.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/task/base_task.h"
#include "tasks/task/learner/learner.h"

namespace tessera {

class RunHealth {
 public:
  // For a run of `num_steps` steps that fails after max_skipped_in_a_row skipped ones.
  RunHealth(int64_t num_steps, const Learner::HParams& p)
      : num_steps_(num_steps),
        max_in_a_row_(p.max_skipped_in_a_row),
        spike_deviations_(p.spike_deviations) {}

  // Logs a step that was skipped or is a spike, and `nonfinite` (FinishedStep). Error if the run
  // has failed.
  void check(const StepResult& result, int64_t step, const std::string& nonfinite, RunLog& log,
             Console& console);
  // Error if a run that ends after `steps` steps has failed.
  void check_end(int64_t steps) const;

 private:
  int64_t num_steps_, max_in_a_row_;
  double spike_deviations_;
  int64_t skipped_ = 0;  // Skipped steps so far, those before a resume included.
};

// Writes this process's rows of the batch of a skipped step for inspection, as
// step_000123.host0.h5. Returns a line that names the file, or says why it could not be written.
std::string keep_batch(const Batch& batch, int64_t step, int process,
                       const std::filesystem::path& directory);
inline constexpr int64_t kMostKeptBatches = 10;  // Kept by a start of a run.

// Prints and logs what layers inspect (layers/inspect.h).
void report_inspected(const std::vector<Inspected>& inspected, int64_t step, RunLog& log,
                      Console& console);

// Resident bytes (/proc/self/statm); 0 if the system does not tell.
int64_t resident_bytes();

// Weights that never get a gradient, a warm-up that is longer than the run, and a decay that ends
// before it.
std::vector<std::string> learning_warnings(const BaseTask& task, const Graph& train_graph);

}  // namespace tessera
