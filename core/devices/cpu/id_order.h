// SPDX-License-Identifier: Apache-2.0
// The order of ids by their value, for kernels that treat equal ids together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "core/devices/cpu/thread_pool.h"

namespace tessera {

// Sorts the positions i in [0, count) by value_of(i), with a stable counting sort; those of a
// negative value are left out. order[begins[v]] to order[begins[v + 1] - 1] are the positions of
// value v, ascending. `begins` has values + 1 elements; begins[values] is the number sorted.
template <typename ValueOf>
void order_by_value(int64_t count, int64_t values, ValueOf value_of, int32_t* begins,
                    int32_t* order) {
  std::fill_n(begins, values + 1, 0);
  for (int64_t i = 0; i < count; ++i)
    if (const int64_t value = value_of(i); value >= 0) ++begins[value + 1];
  std::partial_sum(begins, begins + values + 1, begins);
  for (int64_t i = 0; i < count; ++i)
    if (const int64_t value = value_of(i); value >= 0)
      order[begins[value]++] = static_cast<int32_t>(i);
  // Each start has moved to that of the next value: shift them back.
  std::copy_backward(begins, begins + values, begins + values + 1);
  begins[0] = 0;
}

// Sorts `count` ids by their place in `values`; others are left out.
inline void order_ids(const int32_t* ids, int64_t count, Range values, int32_t* begins,
                      int32_t* order) {
  const auto place = [&](int64_t i) {
    return values.contains(ids[i]) ? ids[i] - values.begin : int64_t{-1};
  };
  order_by_value(count, values.size(), place, begins, order);
}

}  // namespace tessera
