// SPDX-License-Identifier: Apache-2.0
// The sizes and arguments of the vector loops of linear recurrences, for all their targets.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/devices/cpu/registry.h"
#include "core/ops/linear_recurrence.h"

namespace tessera {

struct RecurrenceShape {
  DType dtype = DType::kF32;  // Queries, keys and values are f32 or bf16.
  bool delta = false, gradient = false;
  int64_t batch = 0, seq = 0, heads = 0, key_dim = 0, value_dim = 0;

  int64_t chunks() const { return (seq + kRecurrenceChunk - 1) / kRecurrenceChunk; }
  // Floats from row to row of each matrix in scratch memory: an odd number of cache lines, so that
  // few rows share a set of the L1 cache.
  int64_t stride() const {
    return padded_floats(std::max({key_dim, value_dim, kRecurrenceChunk})) | 16;
  }
  // Scratch memory of a thread.
  int64_t scratch_floats() const {
    const int64_t rows = gradient ? 16 * kRecurrenceChunk + (2 + chunks()) * key_dim + 2 * value_dim
                                  : 9 * kRecurrenceChunk + 2 * key_dim;
    return rows * stride();
  }
};

// Null where a node has no such operand or result.
struct RecurrenceArgs {
  const void *query = nullptr, *key = nullptr, *value = nullptr, *d_out = nullptr;
  const float *log_decay = nullptr, *beta = nullptr, *state = nullptr, *d_last_state = nullptr;
  const int32_t* segments = nullptr;
  void *out = nullptr, *d_query = nullptr, *d_key = nullptr, *d_value = nullptr;
  float *last_state = nullptr, *d_log_decay = nullptr, *d_beta = nullptr, *d_state = nullptr;
};

}  // namespace tessera
