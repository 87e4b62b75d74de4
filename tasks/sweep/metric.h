// SPDX-License-Identifier: Apache-2.0
// The metric by which a sweep compares its trials, and its values in the log of a trial.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tasks/task/config/search_space.h"

namespace tessera {

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

}  // namespace tessera
