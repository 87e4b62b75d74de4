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
#include "tasks/planner/prices/priced_launch.h"
#include "tasks/planner/simulation.h"

namespace tessera {

// The memory that a planned step uses at one of its launches.
struct MemoryAt {
  int64_t used = 0;  // Bytes of the arena that hold something, parameters and state included.
  int64_t gaps = 0;  // Bytes between those that do, up to the last one.
  // Bytes that the arena must have at this launch.
  int64_t bytes() const { return used + gaps; }
};

// Computes the memory at each launch of the plan. The largest number of bytes is the planned peak.
std::vector<MemoryAt> memory_curve(const StepProgram& step);

// Positions in the curve, for a drawing of at most `most` points, or the peak if that is 1. Where
// there are many launches, each point is the launch with most bytes among its neighbours, and among
// equal ones the first with the fewest gaps.
std::vector<size_t> fullest_launches(const std::vector<MemoryAt>& curve, size_t most);

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
