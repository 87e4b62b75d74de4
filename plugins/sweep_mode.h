// SPDX-License-Identifier: Apache-2.0
// --mode=sweep: from the command line to the trials of tasks/sweep, each a run of this program.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/runtime/comm/process_group.h"
#include "core/runtime/executor/device_kinds.h"
#include "plugins/command_line.h"
#include "plugins/configure.h"

namespace tessera {

struct SweepMode {
  const CommandLine& line;
  // The configuration with these --sets after those of the command line.
  std::function<ConfiguredExperiment(const std::vector<std::string>& sets)> configured;
  // What to tell a user whose data are missing; nullopt if none are.
  std::function<std::optional<std::string>(const ConfiguredExperiment&)> missing_data;
  const DeviceKind& kind;
  ProcessGroup& processes;
  std::ostream& out;
  std::ostream& errors;
};

// Checks all trials, then runs those that are not done, in line.run.job_log_dir or
// runs/FAMILY.Name.sweep. Returns the exit code. Error, which names the trial, if one could not
// start.
int run_sweep(const SweepMode& mode);

// CUDA_VISIBLE_DEVICES for the trial in one of the places 0, 1, …, each of which has `devices` GPUs
// of its own. `visible`: the variable of this process; empty: all GPUs. Error if it has too few.
std::string gpus_of_place(int64_t place, int64_t devices, const std::string& visible);

}  // namespace tessera
