// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/trials.h"

#include <array>
#include <cmath>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "core/hparams/tree.h"
#include "core/io/file.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/log/console.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/modes/modes.h"
#include "tasks/run/report/run_comparison.h"
#include "tasks/run/session/metric_outputs.h"
#include "tasks/run/train/train_session.h"
#include "tasks/task/config/mesh_config.h"

namespace tessera {
namespace {

using Kind = SweepValues::Kind;

void check_axis(const SweepAxis& axis, bool is_grid) {
  const SweepValues& values = axis.values;
  if (axis.path.empty()) fail("the sweep has an axis without a path");
  if (values.kind == Kind::kListed) {
    if (values.listed.empty())
      fail("the sweep gives no value for {}; expected at least one", axis.path);
    return;
  }
  if (is_grid)
    fail(
        "{} has a distribution, which has no list of values for a grid; give the number of trials "
        "to draw (--sweep_trials=20, or random_space(…, 20) in search()), or list values",
        axis.path);
  if (!std::isfinite(values.low) || !std::isfinite(values.high) || values.low >= values.high)
    fail("{}: the bounds of the distribution are {} and {}; expected finite ones, the lower first",
         axis.path, values.low, values.high);
  if (values.kind == Kind::kLogUniform && values.low <= 0.0)
    fail("{}: the lower bound of log_uniform is {}, expected more than 0", axis.path, values.low);
}

// A number in [0, 1) with 53 random bits, a function of the seed, the axis and the trial: adding an
// axis does not change the draws of the others.
double draw(uint64_t seed, const std::string& path, int64_t trial) {
  const PhiloxBlock bits = philox(random_key(seed, path), static_cast<uint64_t>(trial), 0);
  const uint64_t word = (uint64_t{bits[0]} << 32 | bits[1]) >> 11;
  return static_cast<double>(word) * 0x1p-53;
}

// The value with four significant digits, within the bounds.
std::string rounded(double value, const SweepValues& values) {
  const double near = std::stod(fmt::format("{:.4g}", value));
  return double_text(std::clamp(near, values.low, values.high));
}

std::string drawn_value(const SweepValues& values, double at) {
  switch (values.kind) {
    case Kind::kListed:
      return values.listed[static_cast<size_t>(at * static_cast<double>(values.listed.size()))];
    case Kind::kUniform:
      return rounded(values.low + at * (values.high - values.low), values);
    case Kind::kLogUniform:
      return rounded(values.low * std::pow(values.high / values.low, at), values);
    case Kind::kUniformInteger:
      return std::to_string(
          std::llround(std::floor(values.low + at * (values.high - values.low + 1.0))));
  }
  return "";
}

// The combination numbered `index`, from 0.
std::vector<TrialSetting> combination(const Sweep& sweep, int64_t index) {
  std::vector<TrialSetting> settings;
  for (auto axis = sweep.axes.rbegin(); axis != sweep.axes.rend(); ++axis) {
    const auto size = static_cast<int64_t>(axis->values.listed.size());
    settings.push_back({axis->path, axis->values.listed[static_cast<size_t>(index % size)]});
    index /= size;
  }
  std::reverse(settings.begin(), settings.end());
  return settings;
}

std::vector<TrialSetting> drawn(const Sweep& sweep, int64_t trial) {
  std::vector<TrialSetting> settings;
  for (const SweepAxis& axis : sweep.axes)
    settings.push_back({axis.path, drawn_value(axis.values, draw(static_cast<uint64_t>(sweep.seed),
                                                                 axis.path, trial))});
  return settings;
}

// Beyond kMostTrials it is not exact.
int64_t number_of_trials(const Sweep& sweep) {
  if (sweep.num_trials > 0) return sweep.num_trials;
  int64_t combinations = 1;
  for (const SweepAxis& axis : sweep.axes)
    combinations =
        std::min(combinations * static_cast<int64_t>(axis.values.listed.size()), kMostTrials + 1);
  return combinations;
}

void check_space(const Sweep& sweep) {
  if (sweep.axes.empty()) fail("the sweep varies nothing");
  if (sweep.num_trials < 0)
    fail("the sweep has {} trials, expected at least 1, or 0 for a grid", sweep.num_trials);
  std::set<std::string> seen;
  for (const SweepAxis& axis : sweep.axes) {
    check_axis(axis, sweep.num_trials == 0);
    if (!seen.insert(axis.path).second)
      fail("the sweep gives {} twice; give all of its values together", axis.path);
  }
  if (number_of_trials(sweep) > kMostTrials)
    fail(
        "the sweep has more than {} trials; list fewer values, or draw some combinations "
        "(--sweep_trials=100)",
        kMostTrials);
}

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

std::string SweepTrial::directory() const { return fmt::format("trial_{:04}", number); }

std::string SweepTrial::text() const { return fmt::format("{}", fmt::join(sets(), " ")); }

std::vector<std::string> SweepTrial::sets() const {
  std::vector<std::string> sets;
  for (const TrialSetting& setting : settings) sets.push_back(setting.path + "=" + setting.value);
  return sets;
}

std::vector<SweepTrial> trials_of(const Sweep& sweep) {
  check_space(sweep);
  std::vector<SweepTrial> trials;
  for (int64_t number = 1; number <= number_of_trials(sweep); ++number)
    trials.push_back(
        {number, sweep.num_trials > 0 ? drawn(sweep, number) : combination(sweep, number - 1)});
  return trials;
}

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
