// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/runner.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/shell_command.h"
#include "core/io/file.h"
#include "tasks/run_directory/run_config.h"
#include "tasks/run_directory/run_directory.h"
#include "tasks/sweep/progress.h"
#include "tasks/sweep/table.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::seconds kProgressInterval{1};
constexpr double kLongestInterval = 60.0;           // Seconds between plain lines of progress.
constexpr std::chrono::seconds kLockPatience{180};  // More than stop_deadline_seconds by default.
constexpr size_t kLinesOfFailure = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Asked by the kernel to save and end if this process dies. In its own process group: Ctrl-C on the
// terminal does not reach it.
std::unique_ptr<ChildProcess> process_of(const TrialCommand& command, const fs::path& output) {
  std::vector<std::string> words = {"env"};
  words.insert(words.end(), command.environment.begin(), command.environment.end());
  words.insert(words.end(), {"setpriv", "--pdeathsig", "TERM"});
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  const int file = open_own_file(output);
  try {
    auto process = std::make_unique<ChildProcess>(words, file);
    ::close(file);
    return process;
  } catch (...) {
    ::close(file);
    throw;
  }
}

// "was killed by SIGKILL", "ended with exit code 1".
std::string end_text(const ChildProcess& process, int status) {
  if (process.signal() == 0) return fmt::format("ended with exit code {}", status);
  const char* name = ::sigabbrev_np(process.signal());
  return "was killed by " + (name == nullptr ? fmt::format("signal {}", process.signal())
                                             : fmt::format("SIG{}", name));
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

TrialRunner::TrialRunner(SweepRecord record, TrialRunnerOptions options, Console& console)
    : record_(std::move(record)), options_(std::move(options)), console_(console) {
  for (size_t i = record_.trials.size(); i-- > 0;) {
    const TrialState state = record_.trials[i].state;
    const bool stays_failed = state == TrialState::kFailed && !options_.retries_failed;
    if (state != TrialState::kDone && !stays_failed) open_.push_back(i);
  }
}

fs::path TrialRunner::directory_of(const SweepTrial& trial) const {
  return options_.directory / trial.directory();
}

int TrialRunner::run() {
  const StopSignal stop;
  while (!open_.empty() || !running_.empty()) {
    if (stopping_ == 0 && stop.requested() != 0) stop_all(stop.requested());
    if (stopping_ == 0) start_more();
    collect();
    if (stopping_ != 0 && running_.empty()) break;
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
                  .process = nullptr};
  running.process =
      process_of(options_.command(record.trial, running.place), directory / "output.txt");
  record.state = TrialState::kRunning;
  record.reason.clear();
  console_.info(fmt::format("trial {} {}: {}", record.trial.number, resumes ? "resumes" : "starts",
                            record.trial.text()));
  running_.push_back(std::move(running));
}

void TrialRunner::collect() {
  for (size_t i = 0; i < running_.size();) {
    const std::optional<int> status =
        running_[i].process->wait(std::chrono::steady_clock::time_point::min());
    if (!status) {
      ++i;
      continue;
    }
    const Running done = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    settle(done, *status);
    next_progress_ = {};  // Now.
  }
}

void TrialRunner::settle(const Running& running, int status) {
  TrialRecord& record = record_.trials[running.index];
  const fs::path directory = directory_of(record.trial);
  record.seconds = seconds_since(running.start);
  record.part = done_part(directory);
  record.score = score_of(directory, record_.metric);
  const std::string time = duration_text(record.seconds);
  if (status == 0 && end_of_log(directory).event == "done") {
    record.state = TrialState::kDone;
    console_.info(fmt::format("trial {} is done in {}: {} {}", record.trial.number, time,
                              record_.metric.name,
                              record.score ? metric_text(record.score->final) : "not logged"));
  } else if (status == 0 || stopping_ != 0) {
    record.state = TrialState::kInterrupted;
    console_.info(fmt::format("trial {} was interrupted after {}", record.trial.number, time));
  } else {
    record.state = TrialState::kFailed;
    const std::string end = end_text(*running.process, status);
    record.reason = end;
    const std::vector<std::string> lines = last_lines(directory / "output.txt", kLinesOfFailure);
    if (!lines.empty()) record.reason += fmt::format(":\n  {}", fmt::join(lines, "\n  "));
    console_.info(fmt::format("trial {} failed after {}: it {}", record.trial.number, time, end));
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

void TrialRunner::show_progress() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_progress_ || running_.empty() || stopping_ != 0) return;
  next_progress_ = now + kProgressInterval;
  for (const Running& one : running_) {
    TrialRecord& record = record_.trials[one.index];
    record.seconds = seconds_since(one.start);
    record.part = done_part(directory_of(record.trial));
  }
  console_.progress(sweep_progress_text(record_, options_.processes), kLongestInterval);
}

int TrialRunner::finish() {
  const int64_t all = std::ssize(record_.trials);
  const int64_t done = record_.count(TrialState::kDone);
  const int64_t failed = record_.count(TrialState::kFailed);
  console_.info("");
  console_.info(trial_table(record_));
  std::string text = fmt::format("{} of {} trials are done", done, all);
  if (all - record_.count(TrialState::kWaiting) >= 2)
    text +=
        "; their page: " + shell_command({"./runexp", "--compare=" + options_.directory.string()});
  console_.info(text);
  if (failed > 0)
    console_.info(fmt::format(
        "{} failed (output.txt in its directory has all output); --retry_failed tries again",
        failed));
  if (done + failed < all) console_.info("run the same command to go on");
  return done == all || (stopping_ != 0 && failed == 0) ? 0 : 1;
}

}  // namespace tessera
