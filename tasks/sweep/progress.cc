// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/progress.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "core/hparams/text.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/logging/console.h"
#include "tasks/run_directory/run_config.h"
#include "tasks/sweep/table.h"
#include "tasks/sweep/trial_process.h"

namespace tessera {
namespace {

constexpr size_t kLongestLine = 16384;  // Of metrics.jsonl.

// The time of a whole trial; nullopt while no trial has told.
std::optional<double> usual_seconds(const SweepRecord& record,
                                    const std::vector<RunningTrial>& running) {
  double sum = 0.0;
  int64_t count = 0;
  for (const TrialRecord& trial : record.trials)
    if (trial.state == TrialState::kDone && trial.seconds > 0.0) {
      sum += trial.seconds;
      ++count;
    }
  if (count == 0)
    for (const RunningTrial& trial : running)
      if (trial.part > 0.0) {
        sum += trial.seconds / trial.part;
        ++count;
      }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace

double done_part(const std::filesystem::path& run_directory) {
  try {
    const std::filesystem::path config = run_directory / "hparams.toml";
    const std::vector<std::string> last =
        last_lines(run_directory / "metrics.jsonl", 1, kLongestLine);
    if (last.empty()) return 0.0;
    const int64_t steps = num_train_steps(parse_toml(read_file(config), config.string()));
    const int64_t step = parse_json(last[0], "metrics.jsonl").at("step").as_integer();
    return steps > 0 ? std::clamp(static_cast<double>(step) / static_cast<double>(steps), 0.0, 1.0)
                     : 0.0;
  } catch (const std::exception&) {  // The trial is writing these files.
    return 0.0;
  }
}

std::optional<double> seconds_left(const SweepRecord& record,
                                   const std::vector<RunningTrial>& running, int64_t processes) {
  const std::optional<double> usual = usual_seconds(record, running);
  if (!usual) return std::nullopt;
  double longest = 0.0, sum = 0.0;
  const auto add = [&](double seconds) {
    longest = std::max(longest, seconds);
    sum += std::max(0.0, seconds);
  };
  for (const RunningTrial& trial : running)
    add(trial.part > 0.0 ? trial.seconds * (1.0 - trial.part) / trial.part
                         : *usual - trial.seconds);
  for (const TrialRecord& trial : record.trials) {
    if (trial.state == TrialState::kWaiting) add(*usual);
    if (trial.state == TrialState::kInterrupted) add(*usual - trial.seconds);
  }
  return std::max(longest, sum / static_cast<double>(std::max<int64_t>(1, processes)));
}

std::string sweep_progress_text(const SweepRecord& record, const std::vector<RunningTrial>& running,
                                int64_t processes) {
  const auto count = [&](TrialState state) {
    return std::ranges::count(record.trials, state, &TrialRecord::state);
  };
  const std::string total = std::to_string(record.trials.size());
  std::string text = fmt::format("trials {:>{}}/{} done  {} running", count(TrialState::kDone),
                                 total.size(), total, running.size());
  if (const auto failed = count(TrialState::kFailed); failed > 0)
    text += fmt::format("  {} failed", failed);
  if (const std::vector<const TrialRecord*> order = ranked(record);
      !order.empty() && order[0]->state == TrialState::kDone && order[0]->score)
    text += fmt::format("  best {} (trial {})", metric_text(order[0]->score->final),
                        order[0]->trial.number);
  if (const std::optional<double> left = seconds_left(record, running, processes))
    text += fmt::format("  {} left", duration_text(*left));
  return text;
}

}  // namespace tessera
