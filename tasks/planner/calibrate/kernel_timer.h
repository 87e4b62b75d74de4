// SPDX-License-Identifier: Apache-2.0
// Times the kernel of a node, or a collective, on several CPU devices that run it at the same time,
// as the devices of a run do: they share the processor's caches and its memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/devices/device.h"
#include "core/graph/graph.h"

namespace tessera {

class KernelTimer {
 public:
  // `seconds`: how long one kernel is repeated.
  KernelTimer(std::vector<std::unique_ptr<Device>> devices, double seconds);

  // Median seconds of a launch, with the gap before the next. Launches take turns among as many
  // sets of operands as fill `cold_bytes`: with more than a cache holds, operands come from behind
  // it. `integers`: exclusive bound of integer operands.
  double launch_seconds(const Graph& graph, const Node& node, int64_t cold_bytes = 0,
                        int64_t integers = 2) const;

  // The median seconds of a collective; each device's graph has it as its only node.
  double collective_seconds(const std::vector<Graph>& graphs) const;

  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }

 private:
  std::vector<std::unique_ptr<Device>> devices_;
  double seconds_;
};

// Calls work(thread, round) on so many threads, which begin each round together, until `seconds`
// have passed, at least three times after a first one that does not count. Returns the median
// seconds of a round.
double median_round(int64_t threads, double seconds,
                    const std::function<void(int64_t thread, int64_t round)>& work);

}  // namespace tessera
