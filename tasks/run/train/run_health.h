// SPDX-License-Identifier: Apache-2.0
// Checks and reports the values of a run's steps: whether the run has failed although every step
// ran, because too many steps were skipped or a loss is not finite; what layers inspect; and how
// much memory its process uses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/run/log/console.h"
#include "tasks/run/log/run_log.h"
#include "tasks/run/session/step_programs.h"

namespace tessera {

class RunHealth {
 public:
  // For a run of `num_steps` steps that fails after `max_skipped_in_a_row` skipped ones (0: no
  // limit).
  RunHealth(int64_t num_steps, int64_t max_skipped_in_a_row)
      : num_steps_(num_steps), max_in_a_row_(max_skipped_in_a_row) {}

  // Logs a step that was skipped, and `nonfinite` (FinishedStep). Error if the run has failed.
  void check(const StepResult& result, int64_t step, const std::string& nonfinite, RunLog& log,
             Console& console);
  // Error if a run that ends after `steps` steps has failed.
  void check_end(int64_t steps) const;

 private:
  int64_t num_steps_, max_in_a_row_;
  int64_t skipped_ = 0;  // Skipped steps so far, those before a resume included.
};

// Prints and logs what layers inspect (layers/inspect.h).
void report_inspected(const std::vector<Inspected>& inspected, int64_t step, RunLog& log,
                      Console& console);

// Resident bytes (/proc/self/statm); 0 if the system does not tell.
int64_t resident_bytes();

}  // namespace tessera
