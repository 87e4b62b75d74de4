// SPDX-License-Identifier: Apache-2.0
// Fits a hardware file to the traced steps of a run, for predictions and for the schedule of
// overlapped collectives (docs/launch_costs.md).
#pragma once

#include <string>
#include <vector>

#include "tasks/calibrate/traced_launches.h"
#include "tasks/hardware/hardware.h"
#include "tasks/plan/compiled_step.h"

namespace tessera {

struct Refit {
  Hardware fitted;   // With the measured times of the launches.
  std::string text;  // What was fitted; the predicted step time before and after, and the measured.
};

// `start`: whose peaks are kept. `experiment` and `where` name the run and its trace. Error if the
// trace is of another program.
Refit refit(const Hardware& start, const CompiledStep& step, const std::vector<TracedStep>& steps,
            const std::string& experiment, const std::string& where);

}  // namespace tessera
