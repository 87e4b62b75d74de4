// SPDX-License-Identifier: Apache-2.0
// The trials of a sweep: the settings of each, which depend on the space, the seed and the trial's
// number only. A second call of the same command therefore gives the same trials.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/task/config/search_space.h"

namespace tessera {

inline constexpr int64_t kMostTrials = 9999;  // Their directories have four digits.

struct TrialSetting {
  std::string path;
  std::string value;
  bool operator==(const TrialSetting&) const = default;
};

struct SweepTrial {
  int64_t number = 1;  // From 1.
  std::vector<TrialSetting> settings;

  std::string directory() const;          // "trial_0003"
  std::string text() const;               // "learning_rate=0.001 num_layers=2"
  std::vector<std::string> sets() const;  // "path=value", as --set takes them.
};

// All trials. In a grid the values of the last axis change fastest. Drawn numbers have four
// significant digits, which is what a table shows. Error for a space without trials: no axis, an
// axis without values or given twice, bounds of a distribution that are not in order, a
// distribution in a grid, or more than kMostTrials.
std::vector<SweepTrial> trials_of(const Sweep& sweep);

}  // namespace tessera
