// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention, fused (Dao et al., 2022): no device ever stores the seq×key_seq
// scores of more than one block of queries of one head.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

enum class AttentionMask { kCausal, kFull };

struct AttentionOptions {
  AttentionMask mask = AttentionMask::kCausal;
  double scale = 1.0;      // Multiplies q·k.
  double logit_cap = 0.0;  // cap·tanh(score/cap), if > 0.
  Tensor segment_ids;      // i32["batch seq"]: attend only within equal ids; invalid: one segment.
  Tensor key_segment_ids;  // i32["batch key_seq"]; invalid: segment_ids renamed.
};

// q["batch seq heads head_dim"], k and v["batch key_seq kv_heads head_dim"] ->
// ["batch seq heads head_dim"]. heads is a multiple of kv_heads: head h reads kv head
// h / (heads/kv_heads) (grouped queries; Ainslie et al., 2023). The axes must have these names and
// this order, else Error. Scores and softmax in f32. Causal: key index <= query index. A query that
// may attend to no key gives 0.
Tensor attention(Operand q, Operand k, Operand v, const AttentionOptions& options);

extern const Op kAttentionOp, kAttentionGradOp;

// Type rule: kv_heads of operand `key` divides heads of operand `query` and is split like it; a
// single kv head may be unsplit.
void check_heads(const InferContext& context, size_t query, size_t key);

// x["… kv_heads …"] for more devices than kv heads: unsplit kv_heads are repeated to one per device
// that splits `heads`, and split like `heads`. x itself if heads are unsplit, or if kv_heads is
// split or divisible by the devices. The gradient is a partial sum over those devices. Error if the
// number of kv heads does not divide the number of devices.
Tensor shared_heads(Operand x, const Axis& heads);

}  // namespace tessera
