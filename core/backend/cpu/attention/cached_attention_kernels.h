// SPDX-License-Identifier: Apache-2.0
// Attention of a few queries of one key head over a cache of keys and values, a run of keys at a
// time: what decoding token by token does. Runs begin at fixed places and are put together in
// order, so that no result depends on how many threads there are or what other rows hold. Many
// queries go by blocks (attention_kernels.h).
#pragma once

#include <cstdint>

#include "core/backend/cpu/attention/attention_kernels.h"

namespace tessera {

inline constexpr int64_t kCacheRun = 256;         // Keys of a run.
inline constexpr int64_t kMostCachedQueries = 8;  // Of one key head: queries times its group.

// What the queries of a key head see in one run: for each, the maximum of its scores, the sum of
// exp(score - maximum), and the values weighted by those.
int64_t cached_run_floats(const AttentionShape& shape);

// Run `run` of key head `kv_head` of row `batch`. `part`: cached_run_floats() of results.
void attend_to_run(const AttentionShape& shape, const AttentionOperands& operands, int64_t batch,
                   int64_t kv_head, int64_t run, float* part);

// The results of a key head's queries from its `runs` parts, one after the other (overwritten).
void join_runs(const AttentionShape& shape, const AttentionResults& results, int64_t batch,
               int64_t kv_head, int64_t runs, float* parts);

}  // namespace tessera
