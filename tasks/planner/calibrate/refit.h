// SPDX-License-Identifier: Apache-2.0
// Fits a hardware file to measured launches of a step, for predictions and for the schedule of
// overlapped collectives (docs/launch_costs.md).
#pragma once

#include <string>
#include <vector>

#include "tasks/planner/calibrate/fit.h"
#include "tasks/planner/compiled_step.h"
#include "tasks/planner/hardware/hardware.h"

namespace tessera {

struct MeasuredStep {
  std::vector<MeasuredLaunch> launches;
  std::string text;      // "2 traced steps".
  double seconds = 0.0;  // The time of the step; 0: unknown.
};

struct Refit {
  Hardware fitted;  // With the measured times of the launches.
  // Says what was fitted: the figures and the predicted step time before and after.
  std::string text;
};

// `start`: whose peaks are kept. `experiment` names the run.
Refit refit(const Hardware& start, const CompiledStep& step, const MeasuredStep& measured,
            const std::string& experiment);

}  // namespace tessera
