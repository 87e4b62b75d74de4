// SPDX-License-Identifier: Apache-2.0
// sweep.json: what a sweep knows of its trials, written again after each change, so that a second
// call goes on where the first one was ended. Whether a trial is complete is read from its own
// directory; docs/formats.md describes the file.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "tasks/sweep/metric.h"
#include "tasks/sweep/trials.h"

namespace tessera {

enum class TrialState {
  kWaiting,      // Not started.
  kRunning,      // In the file of a sweep that was killed: interrupted.
  kInterrupted,  // Started, and to be resumed.
  kDone,
  kFailed,
};

constexpr std::array<EnumName<TrialState>, 5> enum_names(TrialState) {
  return {{{TrialState::kWaiting, "waiting"},
           {TrialState::kRunning, "running"},
           {TrialState::kInterrupted, "interrupted"},
           {TrialState::kDone, "done"},
           {TrialState::kFailed, "failed"}}};
}

struct TrialRecord {
  SweepTrial trial;
  TrialState state = TrialState::kWaiting;
  double seconds = 0.0;  // Of all of its processes.
  std::string reason;    // Of kFailed: how its process ended, and its last lines.
  std::optional<Score> score;
};

struct SweepRecord {
  std::string experiment;  // "quickstart.CharLm"
  SweepMetric metric;
  std::vector<TrialRecord> trials;  // Numbered from 1.
};

void write_sweep_record(const std::filesystem::path& file, const SweepRecord& record);
// Error that names the file if it is no sweep.json.
SweepRecord read_sweep_record(const std::filesystem::path& file);

// The trials with what `before` knows of those that it has too. Error if a trial of `before` has
// other settings now or does not exist any more: its directory would hold another run.
std::vector<TrialRecord> continued(const std::vector<SweepTrial>& trials,
                                   const SweepRecord& before);

// Trials by rank: complete ones by their final value, best first, then the others by number.
std::vector<const TrialRecord*> ranked(const SweepRecord& record);

}  // namespace tessera
