// SPDX-License-Identifier: Apache-2.0
// Who is told of each launch: afterwards, for traces, and before one that changes what persists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/graph/graph.h"
#include "core/passes/step_plan.h"

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

// Called before bytes of a parameter or state are written, by the threads of all devices at once.
using WriteGuard = std::function<void(std::span<const std::byte>)>;

}  // namespace tessera
