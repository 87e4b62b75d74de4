// SPDX-License-Identifier: Apache-2.0
// --mode=calibrate --trace=RUN: fits a hardware file to the trace of a run, or to the measured
// launches of a file, such as gpu_check's campaign.toml. It measures nothing and needs no devices.
#pragma once

#include <filesystem>
#include <memory>

#include "tasks/planner/hardware/hardware.h"
#include "tasks/run/run_setting.h"

namespace tessera {

struct RefitOptions {
  std::filesystem::path trace;      // trace.json.gz, or a file with [launches].
  Hardware hardware;                // The file to start from, whose peaks are kept.
  std::filesystem::path directory;  // Where the file is written; it may not exist yet.
};

inline bool is_launches_file(const std::filesystem::path& trace) {
  return trace.extension() == ".toml";
}

// The device is one of the kind that the measured run used, or a planned one. Errors of the
// constructor: the trace is damaged or of another program. run() writes kFittedHardwareFile and
// prints what was fitted, and the predicted step time before and after beside the measured.
std::unique_ptr<BaseRun> refit_run(const RunContext& context, const RefitOptions& options);

}  // namespace tessera
