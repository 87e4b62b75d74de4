// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/trial_record.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/log/console.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/modes/plan_run.h"
#include "tasks/run/report/run_comparison.h"
#include "tasks/run/session/metric_outputs.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/mesh_config.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 4> kBestWhenHigh = {"accuracy", "exact_match",
                                                           "tokens_per_sec", "mfu"};

std::string default_metric(const std::vector<std::string>& logged) {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(logged, name) != logged.end();
  };
  if (has("eval/validation/loss")) return "eval/validation/loss";
  const auto first = std::ranges::find_if(logged, [](const std::string& name) {
    return name.starts_with("eval/") && name.ends_with("/loss");
  });
  return first == logged.end() ? "loss" : *first;
}

SweepGoal goal_of(std::string_view metric) {
  const std::string_view last = metric.substr(metric.rfind('/') + 1);
  return std::ranges::find(kBestWhenHigh, last) == kBestWhenHigh.end() ? SweepGoal::kMin
                                                                       : SweepGoal::kMax;
}

// The trials of a sweep as a table of text.

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

SweepMetric choose_metric(const Sweep& sweep, const std::vector<std::string>& logged) {
  const std::string name = sweep.metric.empty() ? default_metric(logged) : sweep.metric;
  if (std::ranges::find(logged, name) == logged.end())
    fail("the trials log no metric '{}'{}; they log {}", name, did_you_mean(name, logged),
         fmt::join(logged, ", "));
  return {name, sweep.goal.value_or(goal_of(name))};
}

std::optional<Score> score_of(const std::filesystem::path& run_directory,
                              const SweepMetric& metric) {
  std::optional<Score> score;
  for (const auto& [step, value] : values_in_log(run_directory / "metrics.jsonl", metric.name)) {
    if (!std::isfinite(value)) continue;
    if (!score) score = Score{step, value, step, value};
    score->step = step;
    score->final = value;
    if (metric.goal == SweepGoal::kMin ? value < score->best : value > score->best) {
      score->best = value;
      score->best_step = step;
    }
  }
  return score;
}

// Checks each trial of a sweep before the first one starts: whether it could start, how far its run
// is, and what it logs. Nothing is allocated or written.

void check_trial(const RunContext& context, TrialRecord* record) {
  const RunSetting& setting = context.setting;
  if (setting.devices > 0) make_mesh(context.config.mesh, setting.devices);
  RunSetting plan = setting;
  plan.verbosity = Verbosity::kSilent;
  plan.devices = std::max<int64_t>(1, plan.devices);
  plan_run({context.config, plan, context.devices, context.processes}, {});
  RunSetting only_compares = setting;
  only_compares.dry_run = true;
  const std::string text = prepare_config(context.config, only_compares);
  const std::filesystem::path stored = setting.job_log_dir / "hparams.toml";
  if (setting.restart || !std::filesystem::exists(stored)) return;
  const LogEnd end = end_of_log(setting.job_log_dir);
  record->state = TrialState::kInterrupted;
  if (end.event == "failed") {
    record->state = TrialState::kFailed;
    record->reason = fmt::format("failed at step {}: {}", end.step, end.reason);
  } else if (end.event == "done" && text == read_file(stored)) {
    record->state = TrialState::kDone;  // A run that is only extended gets another text.
  }
}

std::vector<std::string> logged_metrics(const RunContext& context) {
  const RunSetting& setting = context.setting;
  Session session(context.config,
                  {.run_directory = setting.job_log_dir,
                   .input_directory = setting.job_log_dir,
                   .devices = setting.devices > 0 ? setting.devices : 1,
                   .allocates = false},
                  context.devices, context.processes);
  std::vector<std::string> names = session.evaluation().metric_names();
  names.emplace_back("loss");
  for (std::string& name :
       MetricOutputs(session.executor(), session.train_program().program()).names())
    if (name != "loss") names.push_back(std::move(name));
  for (const char* name :
       {"grad_norm", "tokens_per_sec", "step_time", "mfu", "input_wait", "skipped"})
    names.emplace_back(name);
  return names;
}

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
