// SPDX-License-Identifier: Apache-2.0
// A run small enough to repeat many times in tests: one narrow transformer layer on a synthetic
// task, on the CPU.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "core/devices/device.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/single_task.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/run_with.h"

namespace tessera {

// Copies letters from two positions earlier, with an alphabet of eight letters.
ExperimentConfig tiny_config(int64_t num_train_steps = 6, DType compute = DType::kF32);
SingleTask::HParams& task_of(ExperimentConfig& config);

// CPU devices of one thread each.
class TinyDevices {
 public:
  explicit TinyDevices(int64_t count = 1);
  const std::vector<Device*>& in_order() const { return in_order_; }

 private:
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Device*> in_order_;
};

// Builds a run on options.devices devices and runs it; returns the exit code.
int run_tiny(const ExperimentConfig& config, const std::filesystem::path& directory,
             RunWith options = {});
// Builds and runs it as one of several processes.
int run_tiny(const ExperimentConfig& config, const std::filesystem::path& directory,
             RunWith options, ProcessGroup& processes);

}  // namespace tessera
