// SPDX-License-Identifier: Apache-2.0
// --mode=train: training steps with checkpoints, evaluation and metrics in the run's directory.
// --mode=plan constructs it, too, and prints the plan instead of training. It knows neither the
// command line (plugins/runexp) nor the mathematics of a step (tasks/single_task.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/devices/device.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/config/experiment.h"
#include "tasks/config/run_setting.h"
#include "tasks/hardware/hardware.h"
#include "tasks/plan/plan_output.h"
#include "tasks/run_directory/graph_drawing.h"

namespace tessera {

// Options of --mode=train.
struct TrainOptions {
  bool falls_back = false;  // Resume from the newest checkpoint that is not damaged.
  std::optional<GraphStage> dump_graph;
  std::optional<ProfileWindow> profile;
  int64_t inspect_interval_steps = 0;    // Print what layers inspect() in these steps; 0: never.
  std::optional<Hardware> launch_costs;  // With launches, for the schedule of collectives.
};

// Other arguments as of make_run (tasks/modes/make_run.h). The exit code is 0 when done, or when
// any process of the run was stopped by SIGTERM or Ctrl-C and the run was saved.
std::unique_ptr<BaseRun> train_run(const ExperimentConfig& config, const RunSetting& setting,
                                   const TrainOptions& options, const std::vector<Device*>& devices,
                                   ProcessGroup& processes);

// A training run that only prints its plan, and writes its files.
std::unique_ptr<BaseRun> plan_run(const ExperimentConfig& config, const RunSetting& setting,
                                  const PlanOptions& options, const std::vector<Device*>& devices,
                                  ProcessGroup& processes);

}  // namespace tessera
