// SPDX-License-Identifier: Apache-2.0
// Information about each launch, and a trace of when each launch of some steps ran, for Perfetto
// and chrome://tracing: for each device a track of compute and one of communication; in both, steps
// above the tasks of a pipeline above phases above layer paths above launches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/compile/memory/step_program.h"
#include "core/devices/device.h"
#include "core/graph/graph.h"

namespace tessera {

// A device computes on one track and communicates on the other. A collective whose result compute
// needs at once is on the compute track.
enum class Track { kCompute, kCommunication };

struct LaunchTimes {
  int64_t device = 0;  // Its number in the mesh.
  Track track = Track::kCompute;
  LaunchKind kind = LaunchKind::kRun;
  std::string_view task;             // Task of a pipeline: "F3"; else "".
  int64_t begin_ns = 0, end_ns = 0;  // Steady clock.
};

// Returns a name: "einsum", "fused add silu mul", "wait for all_gather".
std::string launch_name(const Node& node, LaunchKind kind);

// Called for each launch of a run, in order, when the run is done; devices' threads call
// concurrently.
using LaunchObserver = std::function<void(const Graph&, const Node&, const LaunchTimes&)>;

// Called before bytes of a parameter or state are written, by the threads of all devices
// concurrently. It may wait.
using WriteGuard = std::function<void(const DeviceBuffer&)>;

class LaunchTrace {
 public:
  // Starts a step: launches observed from now on belong to it.
  void begin_step(int64_t step);
  // Returns an observer for Executor::observe; the trace must outlive its use.
  LaunchObserver observer();

  // Returns the trace in Chrome's trace event format.
  std::string json() const;
  // Writes json(), compressed by gzip.
  void write(const std::filesystem::path& path) const;

 private:
  struct Launch {
    std::string name;  // "einsum", "fused add silu mul".
    std::vector<std::string>
        ancestry;      // "step 3", "F0" of a pipeline, "forward", then the parts of the layer path.
    std::string type;  // launch_type(); "" for a wait.
    std::string site;
    std::string result;  // Type of the first result.
    int64_t begin_ns = 0, end_ns = 0;
  };
  using TrackOfDevice = std::pair<int64_t, Track>;
  void add(const Graph& graph, const Node& node, const LaunchTimes& times);

  mutable std::mutex mutex_;  // Devices launch concurrently.
  int64_t step_ = 0;
  std::map<TrackOfDevice, std::vector<Launch>> tracks_;
};

// The work of a launch in one line that is equal in every program and on every device of a mesh:
// the key of measured launch costs.
//
// Returns the op, or "fused" and all of its ops, with the types of operands and results on one
// device: "einsum (bf16["batch=4 embed=8"], bf16["embed=8 mlp=16"]) -> (bf16["batch=4 mlp=16"])".
// Collectives have their mesh axes and the number of devices that take part: "all_gather over data
// (4 devices) …". Attributes are left out, since some differ between devices, except `causal` of
// attention, which halves the work. A text of more than 400 bytes ends with a hash of the whole.
std::string launch_type(const Graph& graph, const Node& node);

}  // namespace tessera
