// SPDX-License-Identifier: Apache-2.0
// Runs training steps: counts the bytes that they send, and traces the kernels of the steps that
// --profile selects.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/runtime/executor/launch_trace.h"
#include "tasks/config/run_options.h"
#include "tasks/logging/console.h"
#include "tasks/train/train_session.h"

namespace tessera {

class StepRunner {
 public:
  // Process 0 traces the window, if there is one, and writes `trace_file`. The session and the
  // console outlive the runner.
  StepRunner(Session& session, const std::optional<ProfileWindow>& window,
             std::filesystem::path trace_file, Console& console);

  // The step numbered `step`, from 0.
  StepResult run(const Batch& batch, int64_t step);
  // Bytes that each device sent per step on average since this start, to compare with the plan.
  // Empty for a single device.
  std::map<std::string, double> traffic(int64_t devices_here) const;

 private:
  StepResult run_counted(const Batch& batch, int64_t step);

  Session& session_;
  std::optional<ProfileWindow> window_;
  std::filesystem::path trace_file_;
  Console& console_;
  LaunchTrace trace_;
  int64_t taken_ = 0;  // Steps since this start.
  int64_t sent_ = 0;   // Bytes sent in these steps by the devices of this process.
};

}  // namespace tessera
