// SPDX-License-Identifier: Apache-2.0
#include "tasks/sweep/runner.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/process.h"
#include "core/base/seconds.h"
#include "core/io/file.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/directory/run_directory.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/shutdown/stop_signal.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::seconds kLockPatience{180};  // More than stop_deadline_seconds by default.

// Starts a process. If this process dies, the kernel signals it to save and end. It has its own
// process group: Ctrl-C on the terminal does not reach it.
std::unique_ptr<ChildProcess> process_of(const std::vector<std::string>& command,
                                         const fs::path& output) {
  std::vector<std::string> words = {"setpriv", "--pdeathsig", "TERM", "env"};
  words.insert(words.end(), command.begin(), command.end());
  return std::make_unique<ChildProcess>(words, open_own_file(output).get());
}

// "was killed by SIGKILL", "ended with exit code 1".
std::string end_text(const ChildProcess& process, int status) {
  if (process.signal() == 0) return fmt::format("ended with exit code {}", status);
  const char* name = ::sigabbrev_np(process.signal());
  return "was killed by " + (name == nullptr ? fmt::format("signal {}", process.signal())
                                             : fmt::format("SIG{}", name));
}

// The last lines of a file, indented, after a colon; "" if it has none.
std::string last_lines(const fs::path& file) {
  constexpr size_t kLines = 5;
  std::vector<std::string> lines;
  std::istringstream tail(tail_of(file, 16384));
  for (std::string line; std::getline(tail, line);)
    if (!line.empty()) lines.push_back("\n  " + shortened(line));
  if (lines.size() > kLines) lines.erase(lines.begin(), lines.end() - kLines);
  return lines.empty() ? "" : fmt::format(":{}", fmt::join(lines, ""));
}

// The reason why the run in this directory cannot be started now: another process still writes to
// it. "" if it can.
std::string use_of(const fs::path& run_directory) {
  if (!fs::exists(run_directory / "lock")) return "";
  try {
    const RunLock lock(run_directory);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

class TrialRunner {
 public:
  TrialRunner(SweepRecord record, const TrialRunnerOptions& options, Console& console)
      : record_(std::move(record)), options_(options), console_(console) {
    for (TrialRecord& trial : record_.trials) {
      const bool stays_failed = trial.state == TrialState::kFailed && !options_.retries_failed;
      if (trial.state != TrialState::kDone && !stays_failed) open_.push_back(&trial);
    }
  }

  int run() {
    const StopSignal stop;
    while (!open_.empty() || !running_.empty()) {
      if (stopping_ == 0 && stop.requested() != 0) stop_all(stop.requested());
      if (stopping_ == 0) start_more();
      collect();
      if (stopping_ != 0 && running_.empty()) break;
      std::this_thread::sleep_for(kPoll);
    }
    return finish();
  }

 private:
  struct Running {
    TrialRecord* trial = nullptr;
    int64_t place = 0;
    Clock::time_point start;
    std::unique_ptr<ChildProcess> process;
  };

  void start_more() {
    while (!open_.empty() && std::ssize(running_) < options_.processes) {
      if (waits_for_directory(open_.front()->trial)) return;
      start(*open_.front());
      open_.pop_front();
    }
  }

  // A trial of a sweep that was killed is told by the kernel to save and end, which takes a moment.
  bool waits_for_directory(const SweepTrial& trial) {
    const std::string use = use_of(directory_of(trial));
    if (use.empty()) {
      waiting_since_.reset();
    } else if (!waiting_since_) {
      waiting_since_ = Clock::now();
      console_.info(fmt::format("trial {} waits: {}", trial.number, use));
    } else if (Clock::now() > *waiting_since_ + kLockPatience) {
      fail("trial {} cannot start: {}", trial.number, use);
    }
    return !use.empty();
  }

  int64_t free_place() const {
    int64_t place = 0;
    while (std::ranges::find(running_, place, &Running::place) != running_.end()) ++place;
    return place;
  }

  void start(TrialRecord& trial) {
    const fs::path directory = directory_of(trial.trial);
    const bool resumes = run_has_begun(directory);
    fs::create_directories(directory);
    const int64_t place = free_place();
    running_.push_back(
        {&trial, place, Clock::now(),
         process_of(options_.command(trial.trial, place), directory / "output.txt")});
    trial.state = TrialState::kRunning;
    trial.reason.clear();
    console_.info(fmt::format("trial {} {}: {}", trial.trial.number, resumes ? "resumes" : "starts",
                              trial.trial.text()));
  }

  void collect() {
    std::erase_if(running_, [this](const Running& one) {
      const std::optional<int> status = one.process->wait(Clock::time_point::min());
      if (status) settle(one, *status);
      return status.has_value();
    });
  }

  void settle(const Running& running, int status) {
    TrialRecord& trial = *running.trial;
    const fs::path directory = directory_of(trial.trial);
    trial.seconds = seconds_since(running.start);
    trial.score = score_of(directory, record_.metric);
    const std::string time = duration_text(trial.seconds);
    std::string text;
    if (status == 0 && end_of_log(directory).event == "done") {
      trial.state = TrialState::kDone;
      text = fmt::format("is done ({} of {}) in {}: {} {}", record_.count(TrialState::kDone),
                         record_.trials.size(), time, record_.metric.name,
                         trial.score ? metric_text(trial.score->final) : "not logged");
    } else if (status == 0 || stopping_ != 0) {
      trial.state = TrialState::kInterrupted;
      text = "was interrupted after " + time;
    } else {
      trial.state = TrialState::kFailed;
      trial.reason = end_text(*running.process, status);
      text = fmt::format("failed after {}: it {}", time, trial.reason);
      trial.reason += last_lines(directory / "output.txt");
    }
    console_.info(fmt::format("trial {} {}", trial.trial.number, text));
  }

  void stop_all(int signal) {
    stopping_ = signal;
    for (const Running& one : running_) one.process->ask_to_stop();
    if (!running_.empty())
      console_.info(fmt::format("{}: waiting until {} running trial{} saved and stopped",
                                StopSignal::name(signal), running_.size(),
                                running_.size() == 1 ? " has" : "s have"));
  }

  int finish() {
    const int64_t all = std::ssize(record_.trials);
    const int64_t done = record_.count(TrialState::kDone);
    const int64_t failed = record_.count(TrialState::kFailed);
    console_.info("");
    console_.info(trial_table(record_));
    std::string text = fmt::format("{} of {} trials are done", done, all);
    if (all - record_.count(TrialState::kWaiting) >= 2)
      text += "; their page: " +
              shell_command({"./runexp", "--compare=" + options_.directory.string()});
    console_.info(text);
    if (failed > 0)
      console_.info(fmt::format(
          "{} failed (output.txt in its directory has all output); --retry_failed tries again",
          failed));
    if (done + failed < all) console_.info("run the same command to go on");
    return done == all || (stopping_ != 0 && failed == 0) ? 0 : 1;
  }

  fs::path directory_of(const SweepTrial& trial) const {
    return options_.directory / trial.directory();
  }

  SweepRecord record_;
  const TrialRunnerOptions& options_;
  Console& console_;
  std::deque<TrialRecord*> open_;  // Trials to start, in order.
  std::vector<Running> running_;
  int stopping_ = 0;  // The signal that stops the sweep; 0: none.
  std::optional<Clock::time_point> waiting_since_;
};

}  // namespace

int run_trials(SweepRecord record, const TrialRunnerOptions& options, Console& console) {
  return TrialRunner(std::move(record), options, console).run();
}

std::string gpus_of_place(int64_t place, int64_t devices, const std::string& visible) {
  std::vector<std::string> names;
  std::istringstream list(visible);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  std::vector<std::string> chosen;
  for (int64_t gpu = place * devices; gpu < (place + 1) * devices; ++gpu) {
    if (!visible.empty() && gpu >= std::ssize(names))
      fail(
          "{}={} has {} GPUs, but the trials that run at the same time use {} or more; give a "
          "lower --sweep_processes",
          kVisibleGpus, visible, names.size(), gpu + 1);
    chosen.push_back(visible.empty() ? std::to_string(gpu) : names[static_cast<size_t>(gpu)]);
  }
  return fmt::format("{}", fmt::join(chosen, ","));
}

}  // namespace tessera
