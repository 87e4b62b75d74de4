// SPDX-License-Identifier: Apache-2.0
// The trials of a sweep with what is known of each. A sweep keeps no file of its own: which trials
// are complete, failed or under way is read from the files of their runs (docs/formats.md), so the
// same command goes on where an earlier one was ended.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
      reason;  // For kFailed: how its process ended, with its last lines; or its log's reason.
  std::optional<Score> score;
  double seconds = 0.0;  // How long this sweep has run it.
};

struct SweepRecord {
  std::string experiment;  // "quickstart.CharLm"
  SweepMetric metric;
  std::vector<TrialRecord> trials;  // Numbered from 1.

  int64_t count(TrialState state) const {
    return std::ranges::count(trials, state, &TrialRecord::state);
  }
};

}  // namespace tessera
