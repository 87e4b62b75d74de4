// SPDX-License-Identifier: Apache-2.0
#include "tasks/task/pipeline_schedules.h"

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/plugin_call.h"

namespace tessera {

REGISTER_TEMPLATE(PipelineSchedule, GPipe);
REGISTER_TEMPLATE(PipelineSchedule, OneForwardOneBackward);
REGISTER_TEMPLATE(PipelineSchedule, InterleavedOneForwardOneBackward);
REGISTER_TEMPLATE(PipelineSchedule, CircularPipeline);
REGISTER_TEMPLATE(PipelineSchedule, ZeroBubbleH1);
REGISTER_TEMPLATE(PipelineSchedule, WrittenPipeline);

PipelineTable checked_table(const Template<PipelineSchedule>& schedule, int64_t stages,
                            int64_t microbatches) {
  const std::unique_ptr<PipelineSchedule> made = schedule.instantiate();
  PipelineTable table =
      calling(*made, "table()", [&] { return made->table(stages, microbatches); });
  if (table.stages != stages || table.microbatches != microbatches)
    fail(
        "{}: the schedule has {} stages and {} microbatches, expected {} and {}; write it for "
        "these "
        "numbers, or change the mesh or num_microbatches",
        schedule.name(), table.stages, table.microbatches, stages, microbatches);
  if (table.chunks < 1)
    fail("{}: the schedule has {} chunks, expected 1 or more", schedule.name(), table.chunks);
  check_pipeline(table);
  return table;
}

PipelineTable WrittenPipeline::table(int64_t, int64_t) const {
  PipelineTable table =
      parse_pipeline(class_name<HParams>(), fmt::format("{}", fmt::join(p_.stages, "\n")));
  table.live_bound = p_.live_bound;
  return table;
}

}  // namespace tessera
