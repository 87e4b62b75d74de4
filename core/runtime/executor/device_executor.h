// SPDX-License-Identifier: Apache-2.0
// One device's part of an executor: its kernels, its arena and its launches. The plan is common to
// all devices; it knows nothing of names, layouts or threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/passes/step_plan.h"
#include "core/runtime/comm/communicator.h"
#include "core/runtime/executor/kernel_cache.h"
#include "core/runtime/executor/launch_observer.h"
#include "core/runtime/executor/side_thread.h"

namespace tessera {

class DeviceExecutor {
 public:
  // `number` is the device's place in the mesh. Without a communicator, collectives can be planned
  // only.
  DeviceExecutor(Device& device, int64_t number, Communicator* communicator);
  ~DeviceExecutor();
  DeviceExecutor(const DeviceExecutor&) = delete;
  DeviceExecutor& operator=(const DeviceExecutor&) = delete;

  Device& device() { return device_; }
  int64_t number() const { return number_; }

  // For plan_memory; valid as long as this.
  KernelFacts facts();
  // Zeroed; false if there is not enough.
  bool allocate(int64_t bytes);
  // Makes the launches of a plan ready: those of `graph`, which is like the plan's but for the
  // values of attributes (it may be the same). Both must outlive this.
  void add_program(const StepPlan& plan, const Graph& graph);

  std::byte* at(int64_t offset) const { return arena_ + offset; }
  // Starts run on a thread beside this one, in their order; waits wait for them.
  void run(int program, const LaunchObserver& observer, const WriteGuard& guard);

 private:
  // One launch with its addresses resolved.
  struct PreparedLaunch {
    Kernel* kernel = nullptr;
    const Graph* graph = nullptr;
    const Node* node = nullptr;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::vector<std::span<const std::byte>> persistent;  // Those outputs that stay after the step.
    std::byte* scratch = nullptr;
    LaunchKind kind = LaunchKind::kRun;
    int64_t start = -1;  // Of starts and waits: which start of the program it is.
  };
  struct Program {
    std::vector<PreparedLaunch> launches;
    std::vector<size_t> starts;  // Which launches are starts.
  };

  void prepare(const StepPlan& plan, const Launch& launch, PreparedLaunch* prepared) const;
  void launch(const PreparedLaunch& launch, Track track) const;
  CollectiveNeeds collective_needs(const Graph& graph, const Node& node) const;
  Kernel& kernel(const Graph& graph, const Node& node);

  Device& device_;
  int64_t number_;
  Communicator* communicator_;
  KernelCache kernels_;
  // Of collectives each node has its own, which can name the layer it serves.
  std::map<const Node*, std::unique_ptr<Kernel>> collectives_;
  std::vector<Program> programs_;
  std::byte* arena_ = nullptr;
  int64_t bytes_ = 0;
  // Of the program that runs.
  const Program* running_ = nullptr;
  const LaunchObserver* observer_ = nullptr;
  const WriteGuard* guard_ = nullptr;
  std::unique_ptr<SideThread> communication_;  // If any program has starts.
};

}  // namespace tessera
