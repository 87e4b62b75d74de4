// SPDX-License-Identifier: Apache-2.0
// One node on a GPU with random operands, in memory outside the arena, so that kernels of it can be
// timed and their results compared.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/devices/device.h"
#include "core/graph/graph.h"
#include "plugins/cuda/device/kernel.h"
#include "plugins/cuda/device/timing.h"

namespace tessera::cuda {

class NodeTrial {
 public:
  // Random floats, different ones in all operands of the first one's dtype; integers from
  // [0, integers); true. Graph, node and context outlive the trial.
  NodeTrial(const Graph& graph, const Node& node, Context& context, int64_t integers = 1);

  // Otherwise the GPU has no room for all that was allocated, and nothing may be launched.
  bool has_memory() const { return memory_.complete(); }
  const std::vector<DeviceAddress>& inputs() const { return inputs_; }

  // The memory for results of the node, where elements that no kernel writes are NaN, and the
  // scratch of this kernel.
  struct Places {
    std::vector<DeviceAddress> outputs;
    DeviceAddress scratch;
  };
  Places places_for(const CudaKernel& kernel);
  DeviceAddress scratch_for(const CudaKernel& kernel) { return allocate(kernel.scratch_bytes()); }
  // Runs a kernel of this node, or of another one.
  void run(CudaKernel& kernel, const LaunchArgs& args);
  // The first and the last `count` elements of a result.
  std::vector<double> ends(const Places& places, size_t output, int64_t count);

 private:
  DeviceAddress allocate(int64_t bytes) { return DeviceAddress(memory_.allocate(bytes)); }
  void write_input(size_t input, std::span<const std::byte> bytes);
  void fill(DeviceAddress to, int64_t bytes, DType dtype);

  const Graph& graph_;
  const Node& node_;
  Context& context_;
  TrialMemory memory_;
  std::unique_ptr<Stream> stream_;
  std::vector<DeviceAddress> inputs_;
};

}  // namespace tessera::cuda
