// SPDX-License-Identifier: Apache-2.0
// Computes when each launch of a step runs, if launches take given times: a simulation of one
// device, or of one device of each stage of a pipeline. The times come from roofline.h.
//
// A device has two streams, as in the executor: kernels run on one, one after another. Collectives
// run on the other one, in the order of their starts, also those that use different links: they
// take turns. A collective starts when the kernels before its start and the collectives before it
// are done. A wait stops the stream of kernels until its collective is done.
//
// A send and its receive, and a collective over stages, begin when all devices that take part have
// reached it, and keep the links of all of them busy until they end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/compile/memory/step_program.h"

namespace tessera {

struct SimulatedLaunch {
  LaunchKind kind = LaunchKind::kRun;
  bool is_collective = false;
  double seconds = 0.0;     // 0 for a wait.
  int64_t waits_for = -1;   // kWait: the position of the start in its program.
  int64_t rendezvous = -1;  // Number of a collective of several programs, equal in all of them.
};

struct SimulatedProgram {
  double begin = 0.0;  // When its first kernel may run.
  std::vector<SimulatedLaunch> launches;
};

struct TimeSpan {
  double begin = 0.0, end = 0.0;
  double seconds() const { return end - begin; }
};

struct SimulatedTimes {
  // Time of each launch. A start, and a collective without a wait of its own, has the time in which
  // its collective runs; a wait has the time in which kernels stop.
  std::vector<TimeSpan> launches;
  std::vector<double> reached;  // When the stream of kernels comes to each launch.
  double kernels_end = 0.0;     // End of the stream of kernels.
  double end = 0.0;             // End of both streams.
};

// Simulates all programs together. Error if programs wait for each other.
std::vector<SimulatedTimes> simulate(const std::vector<SimulatedProgram>& programs);

// Time in which the stream of kernels waits for a collective.
struct Stall {
  size_t launch = 0;     // The position of the collective that is waited for.
  double exposed = 0.0;  // Part in which the device communicates, this collective or one before it.
  double idle = 0.0;     // The rest, in which another device is awaited.
};
// Finds the stalls of a program, in its order.
std::vector<Stall> stalls_of(const SimulatedProgram& program, const SimulatedTimes& times);

}  // namespace tessera
