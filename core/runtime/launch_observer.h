// SPDX-License-Identifier: Apache-2.0
// Who is told of each launch, for traces.
#pragma once

#include <cstdint>
#include <functional>

#include "core/graph/graph.h"
#include "core/passes/memory.h"

namespace tessera {

// A device computes and communicates on tracks of their own. Only what runs beside compute is on
// the second; collectives that compute waits for at once are on the first.
enum class Track { kCompute, kCommunication };

struct LaunchTimes {
  int64_t device = 0;  // Its number in the mesh.
  Track track = Track::kCompute;
  LaunchKind kind = LaunchKind::kRun;
  int64_t begin_ns = 0, end_ns = 0;  // Steady clock.
};

// Called after each launch, by the threads of all devices at once.
using LaunchObserver = std::function<void(const Graph&, const Node&, const LaunchTimes&)>;

}  // namespace tessera
