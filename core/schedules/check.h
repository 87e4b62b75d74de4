// SPDX-License-Identifier: Apache-2.0
// Proves that a pipeline schedule is correct or complete, from any source.
#pragma once

#include "core/schedules/table.h"

namespace tessera {

// Error unless
// - the table is complete (check_complete);
// - no stages wait for each other, even if ticks are ignored and each stage only keeps its order:
//   the order of each stage and the needs of its tasks together have no cycle. As sends are
//   asynchronous, the stages then cannot deadlock, however long tasks take;
// - each task is at a later tick than the tasks that make what it needs;
// - each stage holds at most as many activations as the table declares (live_bound).
// The message names the first violation, with stages, ticks and tasks.
void check_pipeline(const PipelineTable& table);

// Error unless
// - all sizes are positive, and all tasks within them;
// - every piece has, for every microbatch, exactly one forward, and either exactly one backward
//   or exactly one backward of input and one of weight;
// - no stage has two tasks at one tick.
void check_complete(const PipelineTable& table);

}  // namespace tessera
