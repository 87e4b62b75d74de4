// SPDX-License-Identifier: Apache-2.0
// How far a sweep is, as one line: trials done, running and failed, the best one so far, and an
// estimate of the time left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tasks/sweep/journal.h"

namespace tessera {

// A trial that runs now.
struct RunningTrial {
  double seconds = 0.0;  // How long its processes have run so far.
  double part = 0.0;     // Of its steps that are done: 0 to 1; 0 if unknown.
};

// Of the run in this directory: the last step in its log, as a part of task.train.num_train_steps.
// 0 if either is not known yet.
double done_part(const std::filesystem::path& run_directory);

// How long all trials that are not done or failed will take, `processes` of them at a time. A trial
// that has not started is expected to take as long as the others: the mean of those that are done,
// or else what the running ones will take. nullopt while nothing is known.
std::optional<double> seconds_left(const SweepRecord& record,
                                   const std::vector<RunningTrial>& running, int64_t processes);

// "trials  3/12 done  2 running  1 failed  best 2.1034 (trial 4)  0:34 left"
std::string sweep_progress_text(const SweepRecord& record, const std::vector<RunningTrial>& running,
                                int64_t processes);

}  // namespace tessera
