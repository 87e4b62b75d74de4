// SPDX-License-Identifier: Apache-2.0
// Checks whether a pipeline schedule contains the work of a step, each task once. It does not check
// the order of tasks (check.h does).
#pragma once

#include "core/schedules/table.h"

namespace tessera {

// Error unless
// - all sizes are positive, and all tasks within them;
// - every piece has, for every microbatch, exactly one forward, and either exactly one backward
//   or exactly one backward of input and one of weight;
// - no stage has two tasks at one tick.
void check_complete(const PipelineTable& table);

}  // namespace tessera
