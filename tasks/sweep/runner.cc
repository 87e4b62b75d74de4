// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/runner.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "tasks/run_directory/run_config.h"
#include "tasks/run_directory/run_directory.h"
#include "tasks/sweep/page.h"
#include "tasks/sweep/progress.h"
#include "tasks/sweep/table.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::seconds kNoteInterval{10};  // Of the times of running trials.
constexpr std::chrono::seconds kProgressInterval{1};
constexpr double kLongestInterval = 60.0;           // Seconds between plain lines of progress.
constexpr std::chrono::seconds kLockPatience{180};  // More than stop_deadline_seconds by default.
constexpr size_t kLinesOfFailure = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Why the run in this directory cannot be started now: another process still writes to it. "" if
// it can.
std::string use_of(const fs::path& run_directory) {
  if (!fs::exists(run_directory / "lock")) return "";
  try {
    const RunLock lock(run_directory);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

bool run_is_complete(const fs::path& run_directory) {
  constexpr size_t kLongestLine = 4096;
  const std::vector<std::string> last =
      last_lines(run_directory / "metrics.jsonl", 1, kLongestLine);
  return !last.empty() && last[0].find("\"event\": \"done\"") != std::string::npos;
}

TrialRunner::TrialRunner(SweepRecord record, TrialRunnerOptions options, Console& console)
    : record_(std::move(record)), options_(std::move(options)), console_(console) {
  for (size_t i = record_.trials.size(); i-- > 0;) {
    const TrialState state = record_.trials[i].state;
    const bool stays_failed = state == TrialState::kFailed && !options_.retries_failed;
    if (state != TrialState::kDone && !stays_failed) open_.push_back(i);
  }
}

double TrialRunner::Running::seconds() const { return seconds_before + seconds_since(start); }

fs::path TrialRunner::directory_of(const SweepTrial& trial) const {
  return options_.directory / trial.directory();
}

int TrialRunner::run() {
  const StopSignal stop;
  save();
  while (!open_.empty() || !running_.empty()) {
    if (stopping_ == 0 && stop.requested() != 0) stop_all(stop.requested());
    if (stopping_ == 0) start_more();
    collect();
    if (stopping_ != 0 && running_.empty()) break;
    note_time();
    show_progress();
    std::this_thread::sleep_for(kPoll);
  }
  return finish();
}

void TrialRunner::start_more() {
  while (!open_.empty() && static_cast<int64_t>(running_.size()) < options_.processes) {
    const size_t index = open_.back();
    if (waits_for_directory(record_.trials[index].trial)) return;
    open_.pop_back();
    start(index);
  }
}

// A trial of a sweep that was killed is told by the kernel to save and end, which takes a moment.
bool TrialRunner::waits_for_directory(const SweepTrial& trial) {
  const std::string use = use_of(directory_of(trial));
  if (use.empty()) {
    is_waiting_ = false;
    return false;
  }
  if (!is_waiting_) {
    is_waiting_ = true;
    waiting_since_ = std::chrono::steady_clock::now();
    console_.info(fmt::format("trial {} waits: {}", trial.number, use));
  }
  if (seconds_since(waiting_since_) > std::chrono::duration<double>(kLockPatience).count())
    fail("trial {} cannot start: {}", trial.number, use);
  return true;
}

int64_t TrialRunner::free_place() const {
  int64_t place = 0;
  while (std::ranges::any_of(running_, [&](const Running& one) { return one.place == place; }))
    ++place;
  return place;
}

void TrialRunner::start(size_t index) {
  TrialRecord& record = record_.trials[index];
  const fs::path directory = directory_of(record.trial);
  const bool resumes = run_has_begun(directory);
  fs::create_directories(directory);
  Running running{.index = index,
                  .place = free_place(),
                  .start = std::chrono::steady_clock::now(),
                  .seconds_before = record.seconds,
                  .process = nullptr};
  const TrialCommand command = options_.command(record.trial, running.place);
  running.process = std::make_unique<TrialProcess>(command.arguments, directory / "output.txt",
                                                   command.environment);
  record.state = TrialState::kRunning;
  record.reason.clear();
  console_.info(fmt::format("trial {} {}: {}", record.trial.number, resumes ? "resumes" : "starts",
                            record.trial.text()));
  running_.push_back(std::move(running));
  save();
}

void TrialRunner::collect() {
  for (size_t i = 0; i < running_.size();) {
    const std::optional<TrialEnd> end = running_[i].process->ended();
    if (!end) {
      ++i;
      continue;
    }
    const Running done = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    settle(done, *end);
    next_progress_ = {};  // Now.
    save();
  }
}

void TrialRunner::settle(const Running& running, const TrialEnd& end) {
  TrialRecord& record = record_.trials[running.index];
  const fs::path directory = directory_of(record.trial);
  record.seconds = running.seconds();
  record.score = score_of(directory, record_.metric);
  const bool ended_well = end.signal == 0 && end.exit_code == 0;
  const std::string time = duration_text(record.seconds);
  if (ended_well && run_is_complete(directory)) {
    record.state = TrialState::kDone;
    console_.info(fmt::format("trial {} is done in {}: {} {}", record.trial.number, time,
                              record_.metric.name,
                              record.score ? metric_text(record.score->final) : "not logged"));
  } else if (ended_well || stopping_ != 0) {
    record.state = TrialState::kInterrupted;
    console_.info(fmt::format("trial {} was interrupted after {}", record.trial.number, time));
  } else {
    record.state = TrialState::kFailed;
    record.reason = end_text(end);
    const std::vector<std::string> lines = last_lines(directory / "output.txt", kLinesOfFailure);
    if (!lines.empty()) record.reason += fmt::format(":\n  {}", fmt::join(lines, "\n  "));
    console_.info(
        fmt::format("trial {} failed after {}: it {}", record.trial.number, time, end_text(end)));
  }
}

void TrialRunner::stop_all(int signal) {
  stopping_ = signal;
  for (const Running& one : running_) one.process->ask_to_stop();
  if (!running_.empty())
    console_.info(fmt::format("{}: waiting until {} running trial{} saved and stopped",
                              StopSignal::name(signal), running_.size(),
                              running_.size() == 1 ? " has" : "s have"));
}

// So that the time of trials is known even if the sweep is killed.
void TrialRunner::note_time() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_note_) return;
  next_note_ = now + kNoteInterval;
  for (const Running& one : running_) record_.trials[one.index].seconds = one.seconds();
  if (!running_.empty()) save();
}

void TrialRunner::show_progress() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_progress_ || running_.empty() || stopping_ != 0) return;
  next_progress_ = now + kProgressInterval;
  std::vector<RunningTrial> running;
  for (const Running& one : running_)
    running.push_back({one.seconds(), done_part(directory_of(record_.trials[one.index].trial))});
  console_.progress(sweep_progress_text(record_, running, options_.processes), kLongestInterval);
}

void TrialRunner::save() {
  write_sweep_record(options_.directory / "sweep.json", record_);
  write_file_atomically(options_.directory / "sweep.html", sweep_page(record_));
}

int TrialRunner::finish() {
  const auto count = [&](TrialState state) {
    return std::ranges::count(record_.trials, state, &TrialRecord::state);
  };
  save();
  console_.info("");
  console_.info(trial_table(record_));
  console_.info(fmt::format("{} of {} trials are done; {} has the table and a plot",
                            count(TrialState::kDone), record_.trials.size(),
                            (options_.directory / "sweep.html").string()));
  const auto failed = count(TrialState::kFailed);
  if (failed > 0)
    console_.info(fmt::format(
        "{} failed (output.txt in its directory has all output); --retry_failed tries again",
        failed));
  const bool is_complete = count(TrialState::kDone) == std::ssize(record_.trials);
  if (!is_complete && count(TrialState::kDone) + failed < std::ssize(record_.trials))
    console_.info("run the same command to go on");
  return is_complete || (stopping_ != 0 && failed == 0) ? 0 : 1;
}

}  // namespace tessera
