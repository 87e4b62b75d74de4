// SPDX-License-Identifier: Apache-2.0
// The launches of a trace, matched to the nodes of a program by type and line of layer code. The
// order may differ: it depends on how collectives are overlapped.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/graph/mesh.h"
#include "core/runtime/executor/executor.h"
#include "tasks/planner/calibrate/fit.h"
#include "tasks/planner/calibrate/run_trace.h"

namespace tessera {

struct TracedStep {
  int64_t device = 0;
  int64_t step = 0;  // From 0.
  double seconds = 0.0;
  std::vector<TraceSlice> launches;  // In the order in which they began; no waits.
  std::vector<double> gaps;          // Seconds between the launches of the compute track.
};

// Each step of each device. `where` names the trace in messages. Error if its launches have no
// types, or if it has no step.
std::vector<TracedStep> traced_steps(const std::vector<TraceSlice>& slices,
                                     const std::string& where);
double median_step(const std::vector<TracedStep>& steps);  // Seconds.

// Medians by type, with the median gap, and with the measured time of all as weight. A collective
// takes what it takes on the device that comes to it last, since the others wait in it; sends and
// receives, which always wait, are left out. Error with the first launch that differs if the steps
// are not of these programs.
std::vector<MeasuredLaunch> measured_launches(const std::vector<TracedStep>& steps,
                                              const std::vector<StagePlan>& stages,
                                              const Mesh& mesh, const std::string& where);

// The launches of these programs that a file of measured launches has, with their time in all of
// the program as weight. Error if it has none.
std::vector<MeasuredLaunch> measured_launches(const std::map<std::string, double>& seconds,
                                              const std::vector<StagePlan>& stages,
                                              const std::string& where);

}  // namespace tessera
