// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/progress.h"

#include <algorithm>

#include <fmt/format.h>

#include "tasks/logging/console.h"
#include "tasks/sweep/table.h"

namespace tessera {
namespace {

// What all steps of a trial take, by those that this sweep has seen; nullopt without any.
std::optional<double> whole_seconds(const TrialRecord& trial) {
  const double seen = trial.part - trial.part_before;
  if (seen <= 0.0 || trial.seconds <= 0.0) return std::nullopt;
  return trial.seconds / seen;
}

std::optional<double> usual_seconds(const SweepRecord& record) {
  for (const TrialState state : {TrialState::kDone, TrialState::kRunning}) {
    double sum = 0.0;
    int64_t count = 0;
    for (const TrialRecord& trial : record.trials)
      if (const auto seconds = whole_seconds(trial); trial.state == state && seconds) {
        sum += *seconds;
        ++count;
      }
    if (count > 0) return sum / static_cast<double>(count);
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> seconds_left(const SweepRecord& record, int64_t processes) {
  const std::optional<double> usual = usual_seconds(record);
  if (!usual) return std::nullopt;
  double longest = 0.0, sum = 0.0;
  for (const TrialRecord& trial : record.trials) {
    if (trial.state == TrialState::kDone || trial.state == TrialState::kFailed) continue;
    const std::optional<double> whole = whole_seconds(trial);
    const double left =
        whole ? *whole * (1.0 - trial.part) : *usual * (1.0 - trial.part_before) - trial.seconds;
    longest = std::max(longest, left);
    sum += std::max(0.0, left);
  }
  return std::max(longest, sum / static_cast<double>(std::max<int64_t>(1, processes)));
}

std::string sweep_progress_text(const SweepRecord& record, int64_t processes) {
  const std::string total = std::to_string(record.trials.size());
  std::string text =
      fmt::format("trials {:>{}}/{} done  {} running", record.count(TrialState::kDone),
                  total.size(), total, record.count(TrialState::kRunning));
  if (const int64_t failed = record.count(TrialState::kFailed); failed > 0)
    text += fmt::format("  {} failed", failed);
  if (const std::vector<const TrialRecord*> order = ranked(record);
      !order.empty() && order[0]->state == TrialState::kDone && order[0]->score)
    text += fmt::format("  best {} (trial {})", metric_text(order[0]->score->final),
                        order[0]->trial.number);
  if (const std::optional<double> left = seconds_left(record, processes))
    text += fmt::format("  {} left", duration_text(*left));
  return text;
}

}  // namespace tessera
