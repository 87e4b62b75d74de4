// SPDX-License-Identifier: Apache-2.0
// Parameters of the attention kernels, which host and kernels must agree on.
#pragma once

#include <cstdint>

#include "core/devices/attention_tiles.h"

namespace tessera::cuda {

// The smallest and largest segment id of kSegmentRun consecutive rows.
struct SegmentBounds {
  int32_t low, high;
};
inline constexpr int kNoWindow = 1 << 30;
inline constexpr int kSegmentRun = 32;

inline constexpr float kEmptyLse = -1e30f;  // The value in core/ops/attention.h.

// Decoding splits the keys into runs at fixed positions, so that the bits of a row's result do not
// depend on other rows.
inline constexpr int kCacheRun = 256;

using attention_tiles::forward_tiles;
using attention_tiles::gradient_columns;
using attention_tiles::gradient_tiles;
using attention_tiles::shared_bytes;
using attention_tiles::TileShape;

// Statistics of a row over one run of keys, scores in base 2: the largest score, and the sum of
// 2^(score - maximum).
struct RunStatistics {
  float maximum, sum;
};

// q, out, cotangent and dq["batch queries heads head_dim"]; key, value, dk and dv have rows at the
// strides below, in elements.
struct AttentionParameters {
  const void *query, *key, *value;
  const int32_t *segments, *key_segments;    // ["batch queries"], ["batch keys"]; or null.
  const SegmentBounds *bounds, *key_bounds;  // Bounds per kSegmentRun rows of a batch row.
  const int32_t* starts;                     // ["batch"]: position of query 0; null: first_query.
  int64_t key_batch_stride, key_head_stride, key_row_stride;
  int batch, queries, keys, heads, kv_heads, head_dim;
  // Query heads that are rows of one tile: heads / kv_heads in decoding (all read the same keys),
  // else 1. Row r is query r / pack of head r % pack.
  int pack;
  bool causal;
  int window;       // The keys that a query sees, its own and earlier ones; kNoWindow: all.
  int first_query;  // Key position of query 0 (not of a cache).
  bool aligned;     // Every row of every tensor begins at a multiple of 16 bytes.
  // In base 2. score = factor·(q·k), or cap·tanh(q·k·scale/logit_cap), where tanh_factor =
  // 2·log2(e)·scale/logit_cap and cap = log2(e)·logit_cap; cap is 0 if logits have no cap.
  float factor, cap, tanh_factor;

  // Forward. With more than one run of keys, `partial` ["batch kv_heads run row width"] takes sums
  // of values, and `statistics` is ["batch kv_heads run row"]; else both are null.
  void* out;
  float* lse;  // ["batch heads queries"].
  float* partial;
  RunStatistics* statistics;
  int runs, run_keys;

  // Gradient.
  const void* cotangent;
  const float *saved_lse, *delta;  // ["batch heads queries"].
  float scale;
  void *dq, *dk, *dv;
};

// Sums of cotangent·out over head_dim.
struct AttentionDeltaParameters {
  const void *out, *cotangent;
  float* delta;  // ["batch heads queries"].
  int64_t rows;  // batch·queries·heads.
  int queries, heads, head_dim;
  bool aligned;
};

struct SegmentBoundsParameters {
  const int32_t* segments;  // ["batch rows"].
  SegmentBounds* bounds;    // ["batch runs"].
  int batch, rows, runs;
};

}  // namespace tessera::cuda
