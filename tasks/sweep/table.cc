// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tasks/logging/console.h"
#include "tasks/report/run_comparison.h"

namespace tessera {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kGap = 2;
constexpr size_t kWidestValue = 24;

struct Column {
  std::vector<std::string> cells;  // The heading first.
  bool is_setting = false;

  size_t width() const {
    size_t width = 0;
    for (const std::string& cell : cells) width = std::max(width, cell.size());
    return width;
  }
};

std::string shortened(const std::string& text) {
  return text.size() <= kWidestValue ? text : text.substr(0, kWidestValue - 2) + "..";
}

std::vector<Column> columns_of(const SweepRecord& record,
                               const std::vector<const TrialRecord*>& order) {
  const auto column = [&](const std::string& heading, auto cell, bool is_setting = false) {
    Column made{{heading}, is_setting};
    for (const TrialRecord* trial : order) made.cells.push_back(cell(*trial));
    return made;
  };
  std::vector<Column> columns = {
      column("trial", [](const TrialRecord& t) { return std::to_string(t.trial.number); })};
  std::vector<std::string> paths;
  if (!order.empty())
    for (const TrialSetting& setting : order[0]->trial.settings) paths.push_back(setting.path);
  const std::vector<std::string> names = short_names(paths, '.');
  for (size_t i = 0; i < names.size(); ++i)
    columns.push_back(column(
        shortened(names[i]),
        [i](const TrialRecord& t) { return shortened(t.trial.settings[i].value); }, true));
  columns.push_back(
      column("state", [](const TrialRecord& t) { return std::string(enum_name(t.state)); }));
  const auto of_score = [&](const std::string& heading, auto text) {
    columns.push_back(column(heading, [&](const TrialRecord& t) {
      return t.score ? text(*t.score) : std::string("-");
    }));
  };
  of_score("step", [](const Score& s) { return std::to_string(s.step); });
  of_score(record.metric.name, [](const Score& s) { return metric_text(s.final); });
  of_score("best", [](const Score& s) { return metric_text(s.best); });
  of_score("at step", [](const Score& s) { return std::to_string(s.best_step); });
  columns.push_back(column("time", [](const TrialRecord& t) {
    return t.seconds > 0.0 ? duration_text(t.seconds) : std::string("-");
  }));
  return columns;
}

size_t width_of(const std::vector<Column>& columns) {
  size_t width = 0;
  for (const Column& column : columns) width += column.width() + kGap;
  return width - kGap;
}

// Removes settings, the last ones first, until the table fits. Returns how many.
size_t make_fit(std::vector<Column>& columns) {
  size_t removed = 0;
  while (width_of(columns) > kColumns) {
    const auto last = std::find_if(columns.rbegin(), columns.rend(),
                                   [](const Column& c) { return c.is_setting; });
    if (last == columns.rend()) break;
    columns.erase(std::next(last).base());
    ++removed;
  }
  return removed;
}

}  // namespace

std::string metric_text(double value) { return fmt::format("{:.6g}", value); }

std::string trial_table(const SweepRecord& record) {
  const std::vector<const TrialRecord*> order = ranked(record);
  std::vector<Column> columns = columns_of(record, order);
  const size_t removed = make_fit(columns);
  std::string text;
  for (size_t row = 0; row <= order.size(); ++row) {
    std::string line;
    for (const Column& column : columns)
      line += fmt::format("{:>{}}{:{}}", column.cells[row], column.width(), "", kGap);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (removed > 0)
    text += fmt::format("({} more setting{}, which --compare shows)\n", removed,
                        removed == 1 ? "" : "s");
  for (const TrialRecord* trial : order)
    if (trial->state == TrialState::kFailed)
      text += fmt::format("trial {} {}\n", trial->trial.number, trial->reason);
  return text;
}

}  // namespace tessera
