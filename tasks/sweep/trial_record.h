// SPDX-License-Identifier: Apache-2.0
// The trials of a sweep with what is known of each. A sweep keeps no file of its own: which trials
// are complete, failed or under way is read from the files of their runs (docs/formats.md), so the
// same command goes on where an earlier one was ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "tasks/sweep/metric.h"
#include "tasks/sweep/trials.h"

namespace tessera {

enum class TrialState {
  kWaiting,      // Not started.
  kRunning,      // By this sweep.
  kInterrupted,  // Started, and to be resumed.
  kDone,
  kFailed,
};

struct TrialRecord {
  SweepTrial trial;
  TrialState state = TrialState::kWaiting;
  std::string
      reason;  // Of kFailed: how its process ended, and its last lines; or its log's reason.
  std::optional<Score> score;
  double part_before = 0.0;  // Of its steps, 0 to 1: done before this sweep started it.
  double part = 0.0;         // The same, by now.
  double seconds = 0.0;      // How long this sweep has run it.
};

struct SweepRecord {
  std::string experiment;  // "quickstart.CharLm"
  SweepMetric metric;
  std::vector<TrialRecord> trials;  // Numbered from 1.

  int64_t count(TrialState state) const;
};

// Trials by rank: complete ones by their final value, best first, then the others by number.
std::vector<const TrialRecord*> ranked(const SweepRecord& record);

// At most this many last lines of a file, each of at most `columns` characters and safe to print.
// Empty if there is no file.
std::vector<std::string> last_lines(const std::filesystem::path& file, size_t lines,
                                    size_t columns = 200);

// The last line of a run's metrics.jsonl. Empty if there is none that is complete.
struct LogEnd {
  int64_t step = 0;
  std::string event;   // "done", "failed", …; "" of a line with metrics.
  std::string reason;  // Of "failed".
};
LogEnd end_of_log(const std::filesystem::path& run_directory);

// The part of task.train.num_train_steps that the run has done; 0 while either is unknown.
double done_part(const std::filesystem::path& run_directory);

}  // namespace tessera
