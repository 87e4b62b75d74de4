// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in gather.cu. Rows are moved as bits, in units of 1 to 16 bytes; the
// suffix of a function is the bits of its unit.
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/strided.h"

namespace tessera::cuda {

// gather_…: row i of the result is row ids[i] - first of its batch of the table, zeros outside
// [0, rows).
struct Gather {
  const void* table;
  const int32_t* ids;
  void* to;
  int64_t count, first, rows;
  Divider ids_of_batch;
  int64_t row_units;
  int lanes_shift;  // 2^lanes_shift threads copy a row.
};

// pick_…: x[outer rows inner] -> [outer several inner], the elements at ids[…] - first of the
// middle axis. Units are elements.
struct Pick {
  const void* from;
  const int32_t* ids;
  void* to;
  int64_t count, first, rows;
  Divider inner, several;
};

// scatter_along_…: x[outer several inner] -> [outer rows inner], where the element at row r of the
// middle axis is the sum of the elements of x whose ids[…] - first is r, in their order.
struct ScatterAlong {
  const void* x;
  const int32_t* ids;
  void* to;
  int64_t count, first, several;
  Divider inner, rows;
};

// cache_update_…: rows[batch seq heads] of units to cache[batch heads keys], where row s goes to
// key starts[batch] + s unless that is outside [0, keys).
struct CacheUpdate {
  const void* rows;
  const int32_t* starts;
  void* cache;
  int64_t count;  // Rows.
  Divider sequence, heads;
  int64_t keys;
  int64_t row_units;
  int lanes_shift;  // 2^lanes_shift threads copy a row.
};

}  // namespace tessera::cuda
