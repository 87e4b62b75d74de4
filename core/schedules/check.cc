// SPDX-License-Identifier: Apache-2.0
// Proves that a pipeline schedule is correct or complete, from any source.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/schedules/table.h"
#include "core/schedules/timeline.h"

namespace tessera {
namespace {

void check_below(const PipelineTable& table, const PipelineTask& task, std::string_view what,
                 int64_t value, int64_t size) {
  if (value < 0 || value >= size)
    fail("{}: {} of stage {} at tick {} has {} {}, expected 0 to {}", table.name, task_text(task),
         task.stage, task.tick, what, value, size - 1);
}

void check_ranges(const PipelineTable& table) {
  check_at_least(table.name, "stages", table.stages, 1);
  check_at_least(table.name, "microbatches", table.microbatches, 1);
  check_at_least(table.name, "chunks", table.chunks, 1);
  for (const PipelineTask& task : table.tasks) {
    check_below(table, task, "stage", task.stage, table.stages);
    check_below(table, task, "chunk", task.chunk, table.chunks);
    check_below(table, task, "microbatch", task.microbatch, table.microbatches);
    if (task.tick < 0)
      fail("{}: {} of stage {} has tick {}, expected 0 or more", table.name, task_text(task),
           task.stage, task.tick);
  }
}

using WorkCounts = std::array<int, 4>;  // Number of tasks by kind: F, B, I, W.

// Formats the tasks found for a piece and a microbatch: "F3.1, twice B3.1"; "nothing".
std::string found_text(PipelineTask task, const WorkCounts& counts) {
  std::string text;
  for (size_t work = 0; work < counts.size(); ++work) {
    if (counts[work] == 0) continue;
    task.work = static_cast<PipelineWork>(work);
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ",
                        counts[work] == 1   ? ""
                        : counts[work] == 2 ? "twice "
                                            : fmt::format("{} times ", counts[work]),
                        task_text(task));
  }
  return text.empty() ? "nothing" : text;
}

[[noreturn]] void fail_by_counts(const PipelineTable& table, PipelineTask task,
                                 const WorkCounts& counts) {
  const std::string found = found_text(task, counts);
  const auto name = [&](PipelineWork work) {
    task.work = work;
    return task_text(task);
  };
  fail(
      "{}: stage {} runs {} for microbatch {} of chunk {}, expected {} once, and either {} once or "
      "{} and {} once each",
      table.name, task.stage, found, task.microbatch, task.chunk, name(PipelineWork::kForward),
      name(PipelineWork::kBackward), name(PipelineWork::kBackwardInput),
      name(PipelineWork::kBackwardWeight));
}

void check_counts(const PipelineTable& table) {
  // A map, since a table with a misprint may have far fewer tasks than its sizes require.
  std::map<std::array<int64_t, 3>, WorkCounts> counts;  // By stage, chunk and microbatch.
  for (const PipelineTask& task : table.tasks)
    ++counts[{task.stage, task.chunk, task.microbatch}][static_cast<size_t>(task.work)];
  for (int64_t stage = 0; stage < table.stages; ++stage)
    for (int64_t chunk = 0; chunk < table.chunks; ++chunk)
      for (int64_t microbatch = 0; microbatch < table.microbatches; ++microbatch) {
        const WorkCounts& found = counts[{stage, chunk, microbatch}];
        if (found != WorkCounts{1, 1, 0, 0} && found != WorkCounts{1, 0, 1, 1})
          fail_by_counts(table, {.stage = stage, .chunk = chunk, .microbatch = microbatch}, found);
      }
}

void check_one_task_at_a_time(const PipelineTable& table) {
  std::map<std::pair<int64_t, int64_t>, const PipelineTask*> at;  // By stage and tick.
  for (const PipelineTask& task : table.tasks) {
    const auto [other, is_new] = at.emplace(std::pair(task.stage, task.tick), &task);
    if (!is_new)
      fail("{}: stage {} has {} and {} at tick {}, expected one task; move one to another tick",
           table.name, task.stage, task_text(*other->second), task_text(task), task.tick);
  }
}

void check_ticks(const PipelineTable& table) {
  const ValueMakers makers(table);
  std::vector<PipelineTask> by_tick = table.tasks;
  std::ranges::sort(by_tick);  // The earliest fault is the one to fix first.
  for (const PipelineTask& task : by_tick)
    for (const PipelineValue& value : needed_values(table, task)) {
      const PipelineTask& maker = table.tasks[static_cast<size_t>(makers.maker(value))];
      if (maker.tick >= task.tick)
        fail(
            "{}: {} of stage {} is at tick {}, but needs {} of stage {}, which is at tick {}; move "
            "it to tick {} or later",
            table.name, task_text(task), task.stage, task.tick, task_text(maker), maker.stage,
            maker.tick, maker.tick + 1);
    }
}

void check_live(const PipelineTable& table) {
  if (table.live_bound.empty()) return;
  if (std::ssize(table.live_bound) != table.stages)
    fail("{}: live_bound has {} numbers, expected one for each of the {} stages", table.name,
         table.live_bound.size(), table.stages);
  const auto live = live_activations(table);
  for (size_t stage = 0; stage < live.size(); ++stage) {
    const int64_t bound = table.live_bound[stage];
    const auto above =
        std::ranges::find_if(live[stage], [bound](int64_t count) { return count > bound; });
    if (above != live[stage].end())
      fail(
          "{}: stage {} holds {} activations at tick {}, expected at most live_bound={}; run a "
          "backward of this stage before its next forward, or raise the bound",
          table.name, stage, *above, above - live[stage].begin(), bound);
  }
}

}  // namespace

void check_complete(const PipelineTable& table) {
  check_ranges(table);
  check_counts(table);
  check_one_task_at_a_time(table);
}

void check_pipeline(const PipelineTable& table) {
  check_complete(table);
  at_earliest_ticks(table);  // Error if stages wait for each other.
  check_ticks(table);
  check_live(table);
}

}  // namespace tessera
