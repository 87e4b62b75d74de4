// SPDX-License-Identifier: Apache-2.0
// The slices of a run's trace.json.gz (core/runtime/executor/launch_trace.h), and its launches,
// matched to the nodes of a program by type and line of layer code. Their order may differ: it
// depends on how collectives are overlapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/mesh.h"
#include "core/runtime/executor/executor.h"
#include "tasks/planner/calibrate/fit.h"

namespace tessera {

enum class TraceTrackKind { kCompute, kCommunication };

// A launch, a wait, or what they are parts of: a step, a task, a phase, a layer.
struct TraceSlice {
  int64_t device = 0;
  TraceTrackKind track = TraceTrackKind::kCompute;
  std::string name;    // "einsum", "wait for all_gather"; "step 3".
  std::string line;    // The layer's line, for a launch or wait.
  std::string launch;  // launch_type() of a launch; "" in traces of older builds.
  int64_t begin_ns = 0, end_ns = 0;
  size_t index = 0;        // Position in the file, where a slice follows those within it.
  bool is_launch = false;  // Or a wait.

  double seconds() const { return static_cast<double>(end_ns - begin_ns) * 1e-9; }
  bool is_wait() const { return is_launch && name.starts_with("wait for "); }
  // The number in "step 3", counted from 0; nullopt for any other slice.
  std::optional<int64_t> step() const;
};

// The slices in the order of the file. `where` names it in messages. Error if the text is not the
// trace of a run, or has no launches.
std::vector<TraceSlice> trace_slices(std::string_view trace, const std::string& where);

// The decompressed text of the file. Error if it is damaged or larger than 256 MiB.
std::string read_trace(const std::filesystem::path& file);

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
