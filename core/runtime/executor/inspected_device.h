// SPDX-License-Identifier: Apache-2.0
// A device that calls an inspector before and after each launch of the runs that an executor
// observes (Executor::observe). The inspector sees the operands and results of a launch before
// later launches reuse the memory. Other runs are as fast as without it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "core/compile/memory/step_program.h"
#include "core/devices/device.h"

namespace tessera {

// A launch that is about to run, or has run.
struct InspectedLaunch {
  LaunchKind kind = LaunchKind::kRun;
  int64_t index =
      0;  // Its number among this kind of launch in its run, in the order of StepProgram.
  std::span<const DeviceAddress> inputs, outputs;  // Empty for a wait.
  Stream& stream;  // Its work so far is done. The inspector may copy by it, and must wait for its
                   // copies.
};

// Called by the device's thread. `before` is called for launches and starts; `after` for launches
// and, when a start's results are complete, for its wait.
struct LaunchInspector {
  std::function<void(const InspectedLaunch&)> before, after;
};

// Wraps `device`, which must outlive the result. Ops for which `runs` is false count as ops without
// a kernel, so that programs can be compiled alike for two kinds of devices; unset: none.
std::unique_ptr<Device> make_inspected_device(Device& device, LaunchInspector inspector,
                                              std::function<bool(const OpDef&)> runs = {});

}  // namespace tessera
