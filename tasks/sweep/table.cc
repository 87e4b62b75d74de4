// SPDX-License-Identifier: Apache-2.0
// The trials of a sweep as a table of text.
#include <algorithm>
#include <vector>

#include <fmt/ranges.h>

#include "tasks/run/log/console.h"
#include "tasks/run/report/run_comparison.h"
#include "tasks/sweep/trial_record.h"

namespace tessera {
namespace {

std::string cell_text(const std::string& text) {
  constexpr size_t kWidest = 24;
  return text.size() <= kWidest ? text : text.substr(0, kWidest - 2) + "..";
}

// Complete trials by their final value, best first, then the others by number.
std::vector<const TrialRecord*> ranked(const SweepRecord& record) {
  std::vector<const TrialRecord*> order;
  for (const TrialRecord& trial : record.trials) order.push_back(&trial);
  const auto is_complete = [](const TrialRecord& trial) {
    return trial.state == TrialState::kDone && trial.score.has_value();
  };
  std::ranges::stable_sort(order, [&](const TrialRecord* a, const TrialRecord* b) {
    if (is_complete(*a) != is_complete(*b)) return is_complete(*a);
    if (!is_complete(*a)) return false;
    return record.metric.goal == SweepGoal::kMin ? a->score->final < b->score->final
                                                 : a->score->final > b->score->final;
  });
  return order;
}

std::vector<std::string> headings(const SweepRecord& record) {
  std::vector<std::string> paths, row = {"trial"};
  for (const TrialSetting& setting : record.trials[0].trial.settings) paths.push_back(setting.path);
  for (const std::string& name : short_names(paths, '.')) row.push_back(cell_text(name));
  row.insert(row.end(), {"state", "step", record.metric.name, "best", "at step", "time"});
  return row;
}

std::vector<std::string> row_of(const TrialRecord& record) {
  std::vector<std::string> row = {fmt::format("{:>5}", record.trial.number)};
  for (const TrialSetting& setting : record.trial.settings) row.push_back(cell_text(setting.value));
  row.emplace_back(enum_name(record.state));
  if (const auto& score = record.score)
    row.insert(row.end(), {std::to_string(score->step), metric_text(score->final),
                           metric_text(score->best), std::to_string(score->best_step)});
  else
    row.insert(row.end(), 4, "-");
  row.push_back(record.seconds > 0.0 ? duration_text(record.seconds) : "-");
  return row;
}

}  // namespace

std::string metric_text(double value) { return fmt::format("{:.6g}", value); }

std::string trial_table(const SweepRecord& record) {
  const std::vector<const TrialRecord*> order = ranked(record);
  std::vector<std::vector<std::string>> rows = {headings(record)};
  for (const TrialRecord* trial : order) rows.push_back(row_of(*trial));
  std::string text = fmt::format("{}\n", fmt::join(table_lines(rows), "\n"));
  for (const TrialRecord* trial : order)
    if (trial->state == TrialState::kFailed)
      text += fmt::format("trial {} {}\n", trial->trial.number, trial->reason);
  return text;
}

}  // namespace tessera
