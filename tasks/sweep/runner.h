// SPDX-License-Identifier: Apache-2.0
// Runs the trials of a sweep as processes, several at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/process.h"
#include "tasks/logging/console.h"
#include "tasks/shutdown/stop_signal.h"
#include "tasks/sweep/trial_record.h"

namespace tessera {

// How a trial is started.
struct TrialCommand {
  std::vector<std::string> environment;  // "NAME=VALUE", in addition.
  std::vector<std::string> arguments;    // The program's path first.
};

struct TrialRunnerOptions {
  std::filesystem::path directory;  // The sweep's, which the caller has locked.
  int64_t processes = 1;            // At a time.
  bool retries_failed = false;
  // The command of a trial in one of the places 0, …, processes - 1.
  std::function<TrialCommand(const SweepTrial& trial, int64_t place)> command;
};

class TrialRunner {
 public:
  TrialRunner(SweepRecord record, TrialRunnerOptions options, Console& console);

  // Runs all trials that are not done, and prints the table of all. A stop signal is sent on to the
  // running trials, which save; others do not start. Returns the exit code of the program: 0 if all
  // are done or a signal stopped the sweep, else 1.
  int run();

 private:
  struct Running {
    size_t index = 0;  // In record_.trials.
    int64_t place = 0;
    std::chrono::steady_clock::time_point start;
    std::unique_ptr<ChildProcess> process;
  };

  void start_more();
  void start(size_t index);
  bool waits_for_directory(const SweepTrial& trial);
  void collect();
  void settle(const Running& running, int status);
  void stop_all(int signal);
  void show_progress();
  int finish();
  std::filesystem::path directory_of(const SweepTrial& trial) const;
  int64_t free_place() const;

  SweepRecord record_;
  const TrialRunnerOptions options_;
  Console& console_;
  std::vector<size_t> open_;  // Trials to start, in order; the next one last.
  std::vector<Running> running_;
  int stopping_ = 0;  // The signal that stops the sweep; 0: none.
  std::chrono::steady_clock::time_point waiting_since_;
  bool is_waiting_ = false;
  std::chrono::steady_clock::time_point next_progress_;
};

}  // namespace tessera
