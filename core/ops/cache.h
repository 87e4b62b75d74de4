// SPDX-License-Identifier: Apache-2.0
// Incremental decoding with a cache of keys and values: each call writes the keys and values of its
// new tokens, and their queries attend to the cache. No gradients.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// cache["batch kv_heads key_seq head_dim"] with rows["batch seq kv_heads head_dim"] written at key
// positions starts[b], starts[b] + 1, … of row b (starts: i32["batch"]). Positions outside
// [0, key_seq) are dropped. In place if nothing else reads the old cache.
Tensor cache_update(Operand cache, Operand rows, Operand starts);

struct CachedAttentionOptions {
  double scale = 1.0;      // Multiplies q·k.
  double logit_cap = 0.0;  // cap·tanh(score/cap), if > 0.
};

// q["batch seq heads head_dim"] over key and value["batch kv_heads key_seq head_dim"] -> like q.
// Query s of row b is at position starts[b] + s and attends to key positions up to its own; a query
// at a negative position gives 0. Heads are grouped as in attention.h. Scores and softmax in f32.
// The bits of a row's result do not depend on other rows.
Tensor cached_attention(Operand q, Operand key, Operand value, Operand starts,
                        const CachedAttentionOptions& options);

extern const Op kCacheUpdateOp, kCachedAttentionOp;

}  // namespace tessera
