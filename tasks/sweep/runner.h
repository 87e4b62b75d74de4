// SPDX-License-Identifier: Apache-2.0
// Runs the trials of a sweep as processes, several at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tasks/run/log/console.h"
#include "tasks/sweep/trials.h"

namespace tessera {

struct TrialRunnerOptions {
  std::filesystem::path directory;  // The sweep's, which the caller has locked.
  int64_t processes = 1;            // At a time.
  bool retries_failed = false;
  // The command of a trial in one of the places 0, …, processes - 1: variables of its environment,
  // "NAME=VALUE", then the program and its arguments.
  std::function<std::vector<std::string>(const SweepTrial& trial, int64_t place)> command;
};

// Runs all trials that are not done, and prints the table of all. A stop signal is sent on to the
// running trials, which save; others do not start. Returns the exit code of the program: 0 if all
// are done or a signal stopped the sweep, else 1.
int run_trials(SweepRecord record, const TrialRunnerOptions& options, Console& console);

inline constexpr const char* kVisibleGpus = "CUDA_VISIBLE_DEVICES";

// Returns CUDA_VISIBLE_DEVICES for the trial that runs in `place` (0, 1, …): the `devices` GPUs of
// that place. `visible` is the value of this process; empty means all GPUs. Error if it names fewer
// GPUs than this place needs.
std::string gpus_of_place(int64_t place, int64_t devices, const std::string& visible);

}  // namespace tessera
