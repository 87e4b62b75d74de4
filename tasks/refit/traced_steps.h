// SPDX-License-Identifier: Apache-2.0
// The launches of each traced step of a run, by device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/report/run_trace.h"

namespace tessera {

struct TracedLaunch {
  std::string type;  // launch_type() (core/runtime/executor/launch_type.h).
  std::string line;  // Of layer code.
  double seconds = 0.0;
};

struct TracedStep {
  int64_t device = 0;
  int64_t step = 0;  // From 0.
  double seconds = 0.0;
  std::vector<TracedLaunch> launches;  // In the order in which they began; no waits.
  std::vector<double> gaps;            // Seconds between the launches of the compute track.
};

// Each step of each device. `where` names the trace in messages. Error if its launches have no
// types, or if it has no step.
std::vector<TracedStep> traced_steps(const std::vector<TraceSlice>& slices,
                                     const std::string& where);

}  // namespace tessera
