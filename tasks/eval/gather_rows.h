// SPDX-License-Identifier: Apache-2.0
// A global batch put together from the rows that each process read, for what looks at examples on
// the host. Training never needs it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/graph/shard.h"
#include "core/runtime/comm/process_group.h"
#include "inputs/base_input.h"

namespace tessera {

// `local` holds this process's rows, those of `ranges` one after the other (none: it is whole).
// Every process gets the same. Arrays have the axis "batch" first.
Batch gather_rows(const Batch& local, const std::vector<RowRange>& ranges, int64_t global_rows,
                  ProcessGroup& processes);

// Row `row` of a batch: its arrays without the axis "batch".
Batch row_of_batch(const Batch& batch, int64_t row);

}  // namespace tessera
