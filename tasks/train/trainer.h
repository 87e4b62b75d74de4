// SPDX-License-Identifier: Apache-2.0
// --mode=train: training steps with checkpoints, evaluation and metrics in the run's directory.
// --mode=plan constructs it, too, and prints the plan instead of training. It knows neither the
// command line (plugins/main_runexp.cc) nor the mathematics of a step (tasks/single_task.h).
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/config/experiment.h"
#include "tasks/config/run_options.h"

namespace tessera {

// Arguments as of make_run (tasks/modes/make_run.h). The exit code is 0 when done, or when any
// process of the run was stopped by SIGTERM or Ctrl-C and the run was saved.
std::unique_ptr<BaseRun> train_run(const ExperimentConfig& config, const RunOptions& options,
                                   const std::vector<Device*>& devices, ProcessGroup& processes);

}  // namespace tessera
