// SPDX-License-Identifier: Apache-2.0
#include "tasks/eval/checkpoint_watcher.h"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = CheckpointWatcher::Next::Kind;
constexpr std::chrono::milliseconds kSlice{20};
constexpr int64_t kTail = 65536;  // Lines of metrics.jsonl can be long: norms of every parameter.

void sleep_unless(const std::function<bool()>& stop, double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  while (Clock::now() < end && !stop()) std::this_thread::sleep_for(kSlice);
}

// The last complete line within the last `kTail` bytes of a file; "" if it has no complete line.
std::string last_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file ? static_cast<std::streamoff>(file.tellg()) : -1);
  if (size <= 0) return "";
  const int64_t begin = std::max<int64_t>(0, size - kTail);
  std::string text(static_cast<size_t>(size - begin), '\0');
  file.seekg(begin);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const size_t end = text.rfind('\n');
  if (end == std::string::npos) return "";
  const size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const size_t start = before == std::string::npos ? 0 : before + 1;
  return text.substr(start, end - start);
}

}  // namespace

CheckpointWatcher::CheckpointWatcher(const std::filesystem::path& run_directory,
                                     const CheckpointChoice& choice, const EvaluationHParams& p,
                                     std::set<int64_t> scored)
    : run_directory_(run_directory),
      store_(run_directory / "checkpoints"),
      choice_(choice),
      p_(p),
      settled_(std::move(scored)),
      alive_at_(Clock::now()) {
  if (choice.kind != CheckpointChoice::Kind::kFollow) settled_.clear();
}

CheckpointWatcher::Next CheckpointWatcher::next(const std::function<bool()>& stop) {
  if (choice_.kind == CheckpointChoice::Kind::kFollow) return next_followed(stop);
  const std::vector<int64_t> steps = store_.steps();
  if (steps.empty() && num_scored_ == 0)
    fail("{} holds no checkpoint to evaluate; train first", store_.directory().string());
  if (choice_.kind == CheckpointChoice::Kind::kAll) {
    if (!listed_) to_score_ = steps;
    listed_ = true;
    for (const int64_t step : to_score_)
      if (!settled_.contains(step)) return {Kind::kStep, step, ""};
    return {};
  }
  if (num_scored_ > 0) return {};
  if (choice_.kind == CheckpointChoice::Kind::kNewest) return {Kind::kStep, steps.back(), ""};
  if (std::find(steps.begin(), steps.end(), choice_.step) == steps.end())
    fail("{}: no checkpoint of step {}; there are those of {}", store_.directory().string(),
         choice_.step, fmt::join(steps, ", "));
  return {Kind::kStep, choice_.step, ""};
}

void CheckpointWatcher::settle(int64_t step, bool was_scored) {
  settled_.insert(step);
  num_scored_ += was_scored ? 1 : 0;
}

// First asks whether the job is done: checkpoints saved before that are then visible.
CheckpointWatcher::Next CheckpointWatcher::next_followed(const std::function<bool()>& stop) {
  const bool done = job_is_done();
  const std::vector<int64_t> steps = store_.steps();
  for (const int64_t step : steps)
    if (!settled_.contains(step)) return {Kind::kStep, step, ""};
  if (done) return {Kind::kEnd, 0, "the job is done"};
  if (const std::string signs = signs_of_life(steps); signs != last_signs_) {
    last_signs_ = signs;
    alive_at_ = Clock::now();
  }
  const double silent = std::chrono::duration<double>(Clock::now() - alive_at_).count();
  if (silent >= p_.follow_patience_seconds)
    return {Kind::kEnd, 0,
            fmt::format("the job has written nothing for {:.3g} s "
                        "(eval.follow_patience_seconds), so it counts as stopped",
                        p_.follow_patience_seconds)};
  sleep_unless(stop, p_.follow_poll_seconds);
  return {Kind::kWait, 0, ""};
}

// The last event that a job writes; if it is resumed, others follow.
bool CheckpointWatcher::job_is_done() const {
  return last_line(run_directory_ / "metrics.jsonl").find("\"event\": \"done\"") !=
         std::string::npos;
}

std::string CheckpointWatcher::signs_of_life(const std::vector<int64_t>& steps) const {
  const std::filesystem::path log = run_directory_ / "metrics.jsonl";
  std::error_code error;
  const auto size = std::filesystem::file_size(log, error);
  if (error) return fmt::format("{}", fmt::join(steps, " "));
  const auto time = std::filesystem::last_write_time(log, error).time_since_epoch().count();
  return fmt::format("{} at {}, {}", size, time, fmt::join(steps, " "));
}

}  // namespace tessera
