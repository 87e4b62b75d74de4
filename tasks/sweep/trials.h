// SPDX-License-Identifier: Apache-2.0
// The trials of a sweep: the settings of each, which depend on the space, the seed and the trial's
// number only, so that a second call of the same command gives the same trials; what is known of
// each, and the metric that compares them. A sweep keeps no file of its own: which trials are
// complete, failed or under way is read from the files of their runs (docs/formats.md), so that the
// same command continues an earlier sweep.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tasks/run/run_setting.h"
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

struct SweepMetric {
  std::string name;  // A key of metrics.jsonl: "eval/validation/loss".
  SweepGoal goal = SweepGoal::kMin;
};

// The metric of the sweep among those that every trial logs. Unset: the loss of the evaluation
// dataset `validation`, or else of the first dataset, or else the training loss. If the goal is
// unset, accuracies and speeds are best when high, all others when low. Error, with the nearest
// name, for a metric that is not logged.
SweepMetric choose_metric(const Sweep& sweep, const std::vector<std::string>& logged);

// What a trial has logged of the metric so far.
struct Score {
  int64_t step = 0;  // Step of the final value.
  double final = 0.0;
  int64_t best_step = 0;
  double best = 0.0;
};

// nullopt if the run has logged no finite value of it.
std::optional<Score> score_of(const std::filesystem::path& run_directory,
                              const SweepMetric& metric);

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

// One line for each trial, complete ones first by their final value, the best one on top, and below
// the reasons of failed ones. What does not fit into 100 columns follows in another table.
std::string trial_table(const SweepRecord& record);

// "0.2134", "1.204e-05": six significant digits.
std::string metric_text(double value);

// Error for whatever would make the run in setting.job_log_dir fail before its first step, except
// missing data: a mesh that needs another number of devices than setting.devices (0: any), a model
// that cannot be built on it, a directory with a run of another configuration. One
// device is enough, which is asked about its kernels. Sets the state of the trial by the files of
// the run, and its reason. It is complete if the run has done all steps of this configuration.
void check_trial(const RunContext& context, TrialRecord* record);

// The keys of metrics.jsonl that a run writes: those of evaluation, then those of training.
std::vector<std::string> logged_metrics(const RunContext& context);

}  // namespace tessera
