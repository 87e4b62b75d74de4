// SPDX-License-Identifier: Apache-2.0
// From a configuration and the command line's options to the run of one mode.
#pragma once

#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/config/experiment.h"
#include "tasks/config/run_options.h"

namespace tessera {

// An Error from here is a wrong configuration, found before step 0 (exit code 2); one from
// BaseRun::run is a failed run (exit code 1). With several processes the caller tells the others
// (ProcessGroup::fail_together).
//
// The devices are those of this process, in the order of their numbers: options.devices of them, or
// one for a plan. They and the processes outlive the run. Only process 0 writes to the run's
// directory and to the console.
std::unique_ptr<BaseRun> make_run(const ExperimentConfig& config, const RunOptions& options,
                                  const std::vector<Device*>& devices, ProcessGroup& processes);

}  // namespace tessera
