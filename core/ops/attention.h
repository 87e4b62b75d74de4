// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention, fused (Dao et al., 2022): no device ever stores the seq×key_seq
// scores of more than one block of queries of one head. For training over whole sequences, and for
// incremental decoding over a cache of keys and values.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

enum class AttentionMask { kCausal, kFull };

struct AttentionOptions {
  AttentionMask mask = AttentionMask::kCausal;
  double scale = 1.0;      // Multiplies q·k.
  double logit_cap = 0.0;  // If > 0: cap·tanh(score/cap).
  // If > 0: a query attends to this many keys, the one at its position and those before it (sliding
  // window; Beltagy et al., 2020). Causal only.
  int64_t window = 0;
  // The key at the position of query 0, at most key_seq. With a window of 2n + 1 and first_query n
  // a query attends to n keys on both sides of its own. Causal only.
  int64_t first_query = 0;
  Tensor segment_ids;      // i32["batch seq"]: attend only within equal ids; invalid: one segment.
  Tensor key_segment_ids;  // i32["batch key_seq"]; invalid: segment_ids renamed.
  Tensor sinks;  // ["heads"], split as those of q (core/ops/attention_sinks.h); invalid: none.
};

// q["batch seq heads head_dim"], k and v["batch key_seq kv_heads head_dim"] ->
// ["batch seq heads head_dim"]. heads is a multiple of kv_heads: head h reads kv head
// h / (heads/kv_heads) (grouped queries; Ainslie et al., 2023). The axes must have these names and
// this order, else Error. Scores and softmax in f32. Causal: key index <= query index +
// first_query. A query that may attend to no key gives 0.
//
// seq and key_seq may be split alike, over devices that hold parts of each sequence. Then keys and
// values are passed around these devices (ring attention; core/compile/spmd/ring_attention.h), or
// those near a device's own are sent to it (core/compile/spmd/halo_attention.cc).
Tensor attention(Operand q, Operand k, Operand v, const AttentionOptions& options);

namespace key {
// cached_attention is always causal and without segments.
inline constexpr AttributeName<bool> kCausal{"causal"}, kSegments{"segments"};
inline constexpr AttributeName<double> kScale{"scale"}, kLogitCap{"logit_cap"};
// Only nodes with a window, or where it is not 0, have these.
inline constexpr AttributeName<int64_t> kWindow{"window"}, kFirstQuery{"first_query"};
}  // namespace key
extern const Op kAttentionOp, kAttentionGradOp, kAttentionSinksOp;
// The window of an attention node of any kind; 0: none.
int64_t attention_window(const Attributes& attributes);
int64_t first_query(const Attributes& attributes);
// Whether a query of a causal node sees a part of the keys before it, or later ones.
bool sees_nearby_keys(const Attributes& attributes, int64_t keys);

// The second result of attention and cached_attention, the logarithm of the softmax's denominator,
// for a query that may attend to no key: exp(kEmptyLse - x) is 0 for any other such logarithm x.
inline constexpr float kEmptyLse = -1e30f;

// Repeats kv heads of x["… kv_heads …"] if there are more devices than kv heads: unsplit kv_heads
// become one per device that splits `heads`, split like `heads`. Returns x itself if heads are
// unsplit, or if kv_heads is split or divisible by the devices. The gradient is a partial sum over
// those devices. Error if the number of kv heads does not divide the number of devices.
Tensor shared_heads(Operand x, const Axis& heads);

// Incremental decoding: each call writes the keys and values of its new tokens to the cache, and
// their queries attend to the cache. No gradients.

// cache["batch kv_heads key_seq head_dim"] with rows["batch seq kv_heads head_dim"] written at key
// positions starts[b], starts[b] + 1, … of row b (starts: i32["batch"]). Positions outside
// [0, key_seq) are dropped. In place if nothing else reads the old cache.
Tensor cache_update(Operand cache, Operand rows, Operand starts);

struct CachedAttentionOptions {
  double scale = 1.0;      // Multiplies q·k.
  double logit_cap = 0.0;  // If > 0: cap·tanh(score/cap).
  int64_t window = 0;      // If > 0: the keys that a query attends to, its own and earlier ones.
  Tensor sinks;            // As in AttentionOptions.
};

// q["batch seq heads head_dim"] over key and value["batch kv_heads key_seq head_dim"] -> like q.
// Query s of row b is at position starts[b] + s and attends to key positions up to its own; a query
// at a negative position gives 0. Heads are grouped as in attention(). Scores and softmax in f32.
// The bits of a row's result do not depend on other rows.
Tensor cached_attention(Operand q, Operand key, Operand value, Operand starts,
                        const CachedAttentionOptions& options);

extern const Op kCacheUpdateOp, kCachedAttentionOp;

}  // namespace tessera
