// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/trial_record.h"

#include <array>
#include <cmath>
#include <string_view>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "tasks/run/log/jsonl_writer.h"

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

}  // namespace tessera
