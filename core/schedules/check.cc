// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/check.h"

#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "core/schedules/timeline.h"

namespace tessera {
namespace {

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

void check_pipeline(const PipelineTable& table) {
  check_complete(table);
  at_earliest_ticks(table);  // Error if stages wait for each other.
  check_ticks(table);
  check_live(table);
}

}  // namespace tessera
