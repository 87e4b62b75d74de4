// SPDX-License-Identifier: Apache-2.0
#include "core/backend/cpu/id_order.h"

#include <algorithm>
#include <numeric>

namespace tessera {

void order_ids(const int32_t* ids, int64_t count, Range values, int32_t* begins, int32_t* order) {
  const int64_t size = values.size();
  std::fill_n(begins, size + 1, 0);
  for (int64_t i = 0; i < count; ++i)
    if (values.contains(ids[i])) ++begins[ids[i] - values.begin + 1];
  std::partial_sum(begins, begins + size + 1, begins);
  for (int64_t i = 0; i < count; ++i)
    if (values.contains(ids[i])) order[begins[ids[i] - values.begin]++] = static_cast<int32_t>(i);
  // Each start has moved to that of the next value: shift them back.
  std::copy_backward(begins, begins + size, begins + size + 1);
  begins[0] = 0;
}

}  // namespace tessera
