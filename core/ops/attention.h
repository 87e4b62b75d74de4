// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention, fused (Dao et al., 2022): no device ever holds the seq×key_seq
// scores of more than one block of queries of one head.
#pragma once

#include "core/graph/op.h"
#include "core/graph/tensor.h"

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
// h / (heads/kv_heads) (grouped queries; Ainslie et al., 2023). Any order of batch-like axes is not
// accepted: the axes must be named and ordered so. Scores and softmax in f32. Causal: key position
// <= query position, by index. A query that may attend to nothing gives 0.
Tensor attention(Operand q, Operand k, Operand v, const AttentionOptions& options);

extern const OpDef kAttentionGradOp, kAttentionOp;

}  // namespace tessera
