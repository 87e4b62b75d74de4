// SPDX-License-Identifier: Apache-2.0
// --mode=replay: repeats one training step of a run from the nearest checkpoint before it, and
// compares what each launch writes with another device, thread count, processor level or build, or
// finds the first launch that writes a value that is not finite (docs/replay.md). It reads the
// run's directory without a lock and writes nothing there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tasks/replay/launch_comparison.h"
#include "tasks/replay/other_side.h"
#include "tasks/replay/recording.h"
#include "tasks/run/run_setting.h"

namespace tessera {

struct ReplayOptions {
  int64_t step = 0;             // Numbered as in metrics.jsonl: the first step of a run is 1.
  CheckpointChoice checkpoint;  // A step: where to begin.
  OtherSideChoice against;
  double tolerance = 0;  // The tolerance of array_difference().
  LaunchInputs inputs = LaunchInputs::kOwn;
  std::filesystem::path record;  // Where to write a recording; or empty.
  RecordedValues values = RecordedValues::kNone;
  std::string kernels_of;        // Another kind of device; or "".
  bool finds_nonfinite = false;  // Find the first value that is not finite; compare nothing.
};

struct ReplaySetting {
  ReplayOptions replay;
  std::string build;  // Build of this program, for recordings.
  // The second process, without --record; empty if none is asked for.
  std::vector<std::string> other_command;
  std::string other_environment;  // "TESSERA_CPU_LEVEL=portable", or "".
  // Whether the other kind of device has a kernel; unset: the same kind.
  std::function<bool(const OpDef&)> other_has_kernel;
};

// The replay may name the checkpoint to begin from. The exit code is 0 if all that was compared is
// equal, or all values are finite, else 1; when the step is only recorded, it is 0. Error for more
// than one process, a step that the run does not have, a damaged checkpoint, and another side with
// a different program.
std::unique_ptr<BaseRun> replay_run(const RunContext& context, const ReplaySetting& setting);

}  // namespace tessera
