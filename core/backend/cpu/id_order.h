// SPDX-License-Identifier: Apache-2.0
// The order of ids by their value, for kernels that treat equal ids together.
#pragma once

#include <cstdint>

#include "core/backend/cpu/thread_pool.h"

namespace tessera {

// A stable counting sort of those of `count` ids that are in `values`. order[begins[v]] to
// order[begins[v + 1] - 1] are the positions of value values.begin + v, ascending. `begins` has
// values.size() + 1 elements; begins[values.size()] is the number of ids in `values`.
void order_ids(const int32_t* ids, int64_t count, Range values, int32_t* begins, int32_t* order);

}  // namespace tessera
