// SPDX-License-Identifier: Apache-2.0
// --mode=train: training steps with checkpoints, evaluation and metrics in the run's directory.
// It knows neither the command line (plugins/runexp) nor the mathematics of a step
// (tasks/task/single_task.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tasks/planner/hardware/hardware.h"
#include "tasks/run/directory/graph_drawing.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// Options of --mode=train.
struct TrainOptions {
  bool falls_back = false;  // Resume from the newest checkpoint that is not damaged.
  std::optional<GraphStage> dump_graph;
  std::optional<ProfileWindow> profile;
  int64_t inspect_interval_steps = 0;    // Print what layers inspect() in these steps; 0: never.
  std::optional<Hardware> launch_costs;  // With launches, for the schedule of collectives.
  std::string note;  // What else to say of the model before the first step; or "".
};

// Only process 0 writes to the run's directory and to the console. The exit code is 0 when done, or
// when any process of the run was stopped by SIGTERM or Ctrl-C and the run was saved.
//
// An Error from here is a wrong configuration, found before step 0 (exit code 2); one from
// BaseRun::run is a failed run (exit code 1). With several processes the caller tells the others
// (ProcessGroup::fail_together).
std::unique_ptr<BaseRun> train_run(const RunContext& context, const TrainOptions& options);

}  // namespace tessera
