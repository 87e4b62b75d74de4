// SPDX-License-Identifier: Apache-2.0
// The cost of a pipeline schedule: when each task runs if tasks take given times, when the pipeline
// is finished, and where each stage is idle and why. Only the order of each stage is used, not the
// ticks: a stage starts its next task as soon as it is free and the values that the task needs have
// arrived. Sends are asynchronous, and a received value waits until it is used. It is a model, not
// a measurement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/schedules/table.h"

namespace tessera {

// Times for one microbatch, in one unit throughout, such as milliseconds.
struct PieceCost {
  double forward = 1.0;
  double backward_input = 1.0;  // A whole backward (B) takes the sum of both.
  double backward_weight = 1.0;
};

struct PipelineCosts {
  std::vector<PieceCost> pieces = {{}};  // One for each piece of the model, or one for all.
  double send = 0.0;  // Transfer between stages, after the task that makes the value.
};

struct TimedTask {
  PipelineTask task;
  double start = 0.0;
  double end = 0.0;
};

enum class BubbleCause {
  kWarmUp,   // Before the stage's first task.
  kWaiting,  // Between two tasks: a value that the second one needs has not arrived.
  kDrain,    // After the stage's last task, until all stages are finished.
};

// Idle time of a stage.
struct Bubble {
  int64_t stage = 0;
  BubbleCause cause = BubbleCause::kWarmUp;
  int64_t waits_for = -1;  // kWaiting: the stage that makes the missing value.
  double start = 0.0;
  double end = 0.0;
};

struct PipelineTimeline {
  PipelineTable table;
  std::vector<TimedTask> tasks;  // In the order of table.tasks.
  std::vector<Bubble> bubbles;   // By stage, then by time.
  double finish = 0.0;

  double idle(int64_t stage) const;
  // Returns the idle time of all stages as a fraction of their total time.
  double bubble_fraction() const;
};

// Computes the timeline. Error if the table is not complete; if stages wait for
// each other, which names the stages, tasks and ticks; if there is neither one cost nor one for
// each piece; and if a cost is negative.
PipelineTimeline pipeline_timeline(const PipelineTable& table, const PipelineCosts& costs);

// Moves each task to the earliest tick that the order of its stage permits, so a schedule can be
// written as an order for each stage. Error if it is not complete or stages wait for each other.
PipelineTable at_earliest_ticks(const PipelineTable& table);

// Prints a table of the idle time of each stage, by cause:
//   stage      busy      idle   warm-up     drain   waiting for
//       0        24         9         0         0   stage 1: 9
std::string bubble_text(const PipelineTimeline& timeline);

}  // namespace tessera
