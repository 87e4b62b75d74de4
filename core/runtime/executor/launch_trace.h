// SPDX-License-Identifier: Apache-2.0
// When each launch of some steps ran, as a trace that Perfetto and chrome://tracing open: for each
// device a track of what it computes and one of what it communicates; in both, steps above phases
// above layer paths above launches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"
#include "core/runtime/executor/launch_observer.h"

namespace tessera {

class LaunchTrace {
 public:
  // Launches observed from now on belong to this step.
  void begin_step(int64_t step);
  // For Executor::observe; the trace must outlive its use.
  LaunchObserver observer();

  bool empty() const;
  // Chrome's trace event format.
  std::string json() const;
  // The same, compressed by gzip.
  void write(const std::filesystem::path& path) const;

 private:
  struct Launch {
    std::string name;                   // "einsum", "fused add silu mul".
    std::vector<std::string> ancestry;  // "step 3", "forward", then the parts of the layer path.
    std::string site;
    std::string result;  // The type of the first result.
    int64_t begin_ns = 0, end_ns = 0;
  };
  using TrackOfDevice = std::pair<int64_t, Track>;
  void add(const Graph& graph, const Node& node, const LaunchTimes& times);

  mutable std::mutex mutex_;  // Devices launch at the same time.
  int64_t step_ = 0;
  std::map<TrackOfDevice, std::vector<Launch>> tracks_;
};

}  // namespace tessera
