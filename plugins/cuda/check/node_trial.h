// SPDX-License-Identifier: Apache-2.0
// One node on a GPU with random operands: its time, by libraries and by our own kernels, and
// whether their results agree.
#pragma once

#include <string>
#include <vector>

#include "core/devices/device.h"
#include "core/graph/graph.h"
#include "plugins/cuda/device/timing.h"

namespace tessera::cuda {

class NodeTrial {
 public:
  // Integer operands are drawn from [0, integers). Device, graph and node outlive the trial.
  NodeTrial(Device& gpu, const Graph& graph, const Node& node, int64_t integers);

  struct Run {
    std::string implementation;  // "cuBLASLt"
    double seconds = 0.0;
    std::vector<DeviceAddress> outputs;
  };
  // Error if the GPU has not enough memory.
  Run run();
  Run run_own();  // With all libraries turned off.

  // Error, with an element, unless both have the same results but for rounding, as far as a million
  // elements at either end of each show.
  void expect_equal(const Run& got, const Run& expected) const;

 private:
  DeviceAddress made(ValueId id, int64_t integers);
  std::vector<double> values(DeviceAddress from, DType dtype, int64_t begin, int64_t count) const;

  Device& gpu_;
  const Graph& graph_;
  const Node& node_;
  TrialMemory memory_;
  WorkTimer timer_;
  std::vector<DeviceAddress> inputs_;
};

}  // namespace tessera::cuda
