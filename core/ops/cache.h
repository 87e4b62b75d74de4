// SPDX-License-Identifier: Apache-2.0
// Incremental decoding: keys and values of earlier tokens stay in a cache, into which each call
// writes those of its new tokens, and over which the new tokens' queries attend. Neither op has a
// gradient.
#pragma once

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

// cache["batch kv_heads key_seq head_dim"] with rows["batch seq kv_heads head_dim"] written at key
// positions starts[b], starts[b] + 1, … of row b (starts: i32["batch"]). What would lie outside of
// [0, key_seq) is dropped. Done in place where nothing reads the old cache any more.
Tensor cache_update(Operand cache, Operand rows, Operand starts);

struct CachedAttentionOptions {
  double scale = 1.0;      // Multiplies q·k.
  double logit_cap = 0.0;  // cap·tanh(score/cap), if > 0.
};

// q["batch seq heads head_dim"] over key and value["batch kv_heads key_seq head_dim"] -> like q.
// Query s of row b stands at position starts[b] + s and attends to key positions up to its own; a
// query at a negative position gives 0. Heads are grouped as in attention.h. Scores and softmax in
// f32. A row's result depends on nothing of other rows, to the bit.
Tensor cached_attention(Operand q, Operand key, Operand value, Operand starts,
                        const CachedAttentionOptions& options);

extern const OpDef kCacheUpdateOp, kCachedAttentionOp;

}  // namespace tessera
