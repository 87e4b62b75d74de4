// SPDX-License-Identifier: Apache-2.0
// All-gathers the rows of a global batch from the processes that read them, for code that looks at
// examples on the host. Training does not use it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/type.h"
#include "core/runtime/comm/process_group.h"
#include "inputs/base_input.h"

namespace tessera {

// `local` holds this process's rows: those of `ranges`, one after the other (no ranges: all rows).
// The result is the same in every process. The first axis of each array is "batch".
Batch gather_rows(const Batch& local, const std::vector<RowRange>& ranges, int64_t global_rows,
                  ProcessGroup& processes);

// One row of a batch: its arrays without the axis "batch".
Batch row_of_batch(const Batch& batch, int64_t row);

}  // namespace tessera
