// SPDX-License-Identifier: Apache-2.0
// A step on a timeline: when each launch of each stage runs, and the memory in use; as a trace for
// Perfetto (timeline.json) and as a drawing (timeline.svg).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/compile/memory/step_program.h"
#include "tasks/planner/prices/memory_curve.h"
#include "tasks/planner/prices/priced_launch.h"
#include "tasks/planner/simulation.h"

namespace tessera {

// One launch of the program, or the wait for one.
struct TimedLaunch {
  size_t price = 0;  // A position in StageTimeline::prices.
  LaunchKind kind = LaunchKind::kRun;
  int64_t task = -1;     // Position in StageTimeline::tasks; -1 without a pipeline.
  double reached = 0.0;  // When the stream of kernels comes to it.
  TimeSpan span;         // When it runs; a wait: when kernels stop.
};

// One device of a stage; without a pipeline the one device that stands for all.
struct StageTimeline {
  int64_t stage = 0;
  std::vector<PricedLaunch> prices;  // One for all iterations of a loop.
  std::vector<TimedLaunch> launches;
  std::vector<Stall> stalls;
  std::vector<MemoryAt> memory;    // At each launch.
  std::vector<std::string> tasks;  // "F0", "B3.1".
  double kernels_end = 0.0;
};

struct StepTimeline {
  std::string title;   // The devices: "8 x NVIDIA H100 SXM".
  double input = 0.0;  // Seconds, before the first kernel, in which the batch is copied.
  double end = 0.0;
  std::vector<StageTimeline> stages;
};

// Chrome's trace event format: a process for each stage; threads for kernels, and for collectives
// within slices and between them; a counter of the memory in use. Beyond 200,000 launches,
// neighbours of one task, or layer, are one slice.
std::string timeline_trace(const StepTimeline& timeline);

// A drawing with time from left to right: what each stream does, and the memory in use and with the
// gaps between blocks. Shows at most eight stages. Readable on light and dark backgrounds.
std::string timeline_svg(const StepTimeline& timeline);

// Writes timeline.json and timeline.svg.
void write_timeline_files(const std::filesystem::path& directory, const StepTimeline& timeline);

}  // namespace tessera
