// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/generators.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/schedules/timeline.h"

namespace tessera {
namespace {

constexpr int64_t kMostTasks = int64_t{1} << 22;  // Forward passes of a step, on all stages.

PipelineTable empty_table(std::string_view name, int64_t stages, int64_t microbatches,
                          int64_t chunks) {
  check_at_least(name, "stages", stages, 1);
  check_at_least(name, "microbatches", microbatches, 1);
  check_at_least(name, "chunks", chunks, 1);
  if (chunks > kMostTasks / stages || microbatches > kMostTasks / (stages * chunks))
    fail(
        "{}: stages={} times chunks={} times microbatches={} is more than {}; lower chunks or "
        "microbatches",
        name, stages, chunks, microbatches, kMostTasks);
  return {
      .name = std::string(name), .stages = stages, .microbatches = microbatches, .chunks = chunks};
}

// Collects the order of each stage; table() moves every task to its earliest tick.
class OrderBuilder {
 public:
  OrderBuilder(std::string_view name, int64_t stages, int64_t microbatches, int64_t chunks = 1)
      : table_(empty_table(name, stages, microbatches, chunks)) {}

  // Starts the order of the next stage, which holds at most this many activations.
  void begin_stage(int64_t live_bound) {
    table_.live_bound.push_back(std::min(live_bound, table_.microbatches * table_.chunks));
    tick_ = 0;
  }
  void add(PipelineWork work, int64_t microbatch, int64_t chunk = 0) {
    const int64_t stage = std::ssize(table_.live_bound) - 1;
    table_.tasks.push_back({tick_++, stage, chunk, microbatch, work});
  }
  PipelineTable table() const { return at_earliest_ticks(table_); }

 private:
  PipelineTable table_;
  int64_t tick_ = 0;
};

// Schedules all forwards, chunk by chunk, then the backwards in reverse.
PipelineTable forwards_first(std::string_view name, int64_t stages, int64_t microbatches,
                             int64_t chunks) {
  OrderBuilder builder(name, stages, microbatches, chunks);
  if (chunks > 1 && microbatches < stages)
    fail(
        "{}: got microbatches={} for stages={}, expected at least as many; raise microbatches to "
        "{}",
        name, microbatches, stages, stages);
  for (int64_t stage = 0; stage < stages; ++stage) {
    builder.begin_stage(microbatches * chunks);
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (int64_t i = 0; i < microbatches; ++i) builder.add(PipelineWork::kForward, i, chunk);
    for (int64_t chunk = chunks - 1; chunk >= 0; --chunk)
      for (int64_t i = microbatches - 1; i >= 0; --i)
        builder.add(PipelineWork::kBackward, i, chunk);
  }
  return builder.table();
}

}  // namespace

PipelineTable gpipe_table(int64_t stages, int64_t microbatches) {
  return forwards_first("GPipe", stages, microbatches, 1);
}

PipelineTable one_forward_one_backward_table(int64_t stages, int64_t microbatches) {
  OrderBuilder builder("1F1B", stages, microbatches);
  for (int64_t stage = 0; stage < stages; ++stage) {
    builder.begin_stage(stages - stage);
    const int64_t warm_up = std::min(stages - 1 - stage, microbatches);
    for (int64_t i = 0; i < warm_up; ++i) builder.add(PipelineWork::kForward, i);
    for (int64_t i = 0; i < microbatches; ++i) {
      if (warm_up + i < microbatches) builder.add(PipelineWork::kForward, warm_up + i);
      builder.add(PipelineWork::kBackward, i);
    }
  }
  return builder.table();
}

PipelineTable interleaved_table(int64_t stages, int64_t microbatches, int64_t chunks) {
  constexpr std::string_view kName = "interleaved 1F1B";
  OrderBuilder builder(kName, stages, microbatches, chunks);
  if (chunks < 2)
    fail("{}: chunks is {}, expected at least 2; for one chunk per stage use 1F1B", kName, chunks);
  if (microbatches % stages != 0)
    fail("{}: got microbatches={}, expected a multiple of stages={}, such as {}", kName,
         microbatches, stages, nearest_multiple(microbatches, stages));
  // The forwards of a stage, numbered from 0: groups of S microbatches, each through all chunks.
  // The backwards are like them with the chunks in reverse.
  const auto add = [&](PipelineWork work, int64_t number) {
    const int64_t group = number / (stages * chunks);
    const int64_t chunk = number / stages % chunks;
    builder.add(work, group * stages + number % stages,
                work == PipelineWork::kForward ? chunk : chunks - 1 - chunk);
  };
  const int64_t count = microbatches * chunks;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const int64_t warm_up = std::min(2 * (stages - 1 - stage) + (chunks - 1) * stages, count);
    builder.begin_stage(warm_up + 1);
    for (int64_t i = 0; i < warm_up; ++i) add(PipelineWork::kForward, i);
    for (int64_t i = 0; i < count; ++i) {
      if (warm_up + i < count) add(PipelineWork::kForward, warm_up + i);
      add(PipelineWork::kBackward, i);
    }
  }
  return builder.table();
}

PipelineTable circular_table(int64_t stages, int64_t microbatches, int64_t chunks) {
  return forwards_first("circular", stages, microbatches, chunks);
}

PipelineTable zero_bubble_h1_table(int64_t stages, int64_t microbatches) {
  OrderBuilder builder("ZB-H1", stages, microbatches);
  for (int64_t stage = 0; stage < stages; ++stage) {
    builder.begin_stage(stages);
    const int64_t warm_up = std::min(stages - 1 - stage, microbatches);
    for (int64_t i = 0; i < warm_up; ++i) builder.add(PipelineWork::kForward, i);
    for (int64_t i = 0; i < microbatches; ++i) {
      if (warm_up + i < microbatches) builder.add(PipelineWork::kForward, warm_up + i);
      builder.add(PipelineWork::kBackwardInput, i);
      if (i >= stage) builder.add(PipelineWork::kBackwardWeight, i - stage);
    }
    for (int64_t i = std::max<int64_t>(microbatches - stage, 0); i < microbatches; ++i)
      builder.add(PipelineWork::kBackwardWeight, i);
  }
  return builder.table();
}

PipelineTable forward_table(int64_t stages, int64_t microbatches, int64_t chunks) {
  PipelineTable table = empty_table("forward", stages, microbatches, chunks);
  std::vector<int64_t> idle_from(static_cast<size_t>(stages), 0);  // Next idle tick of each stage.
  for (int64_t first = 0; first < microbatches; first += stages) {
    const int64_t end = std::min(first + stages, microbatches);
    std::vector<int64_t> arrivals(static_cast<size_t>(end - first), 0);  // At the next piece.
    for (int64_t piece = 0; piece < table.pieces(); ++piece)
      for (int64_t i = first; i < end; ++i) {
        const int64_t stage = piece % stages;
        int64_t& idle = idle_from[static_cast<size_t>(stage)];
        int64_t& arrival = arrivals[static_cast<size_t>(i - first)];
        const int64_t tick = std::max(idle, arrival);
        table.tasks.push_back({tick, stage, piece / stages, i, PipelineWork::kForward});
        idle = arrival = tick + 1;
      }
  }
  std::ranges::sort(table.tasks);
  return table;
}

}  // namespace tessera
