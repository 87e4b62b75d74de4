// SPDX-License-Identifier: Apache-2.0
// Runs a session's training steps: counts what they send to other devices, and times every kernel
// of those steps that --profile asks about. When to step, and what of it is recorded, is the
// trainer's.
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
  // The window, if there is one, is observed by process 0 and ends in `trace_file`. The session and
  // the console outlive the runner.
  StepRunner(Session& session, const std::optional<ProfileWindow>& window,
             std::filesystem::path trace_file, Console& console);

  // The step numbered `step`, from 0.
  StepResult run(const Batch& batch, int64_t step);
  // Of the steps since this start: what each device sent in one, on average; the plan foretells it.
  // Empty for a device that is alone.
  std::map<std::string, double> traffic(int64_t devices_here) const;

 private:
  StepResult run_counted(const Batch& batch, int64_t step);

  Session& session_;
  std::optional<ProfileWindow> window_;
  std::filesystem::path trace_file_;
  Console& console_;
  LaunchTrace trace_;
  int64_t taken_ = 0;  // Since this start.
  int64_t sent_ = 0;   // Bytes in those, by the devices of this process.
};

}  // namespace tessera
