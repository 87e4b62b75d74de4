// SPDX-License-Identifier: Apache-2.0
// Attention that stores all its scores, for what the fused op (core/ops/attention.h) does not
// compute: dropout of probabilities, biases of scores, and cross-attention of split sequences.
#pragma once

#include "core/ops/attention.h"
#include "layers/layer.h"

namespace tessera {

struct ScoreOptions {
  double scale = 1.0;      // Multiplies q·k.
  double logit_cap = 0.0;  // If > 0: cap·tanh(score/cap).
  Tensor mask;             // bool["batch seq key_seq"] or a subset of these axes; invalid: none.
  Tensor bias;             // f32["seq key_seq heads"], maybe with batch; invalid: none.
  Tensor sinks;            // As in AttentionOptions.
  const ChildLayer<UnaryLayer>* dropout = nullptr;  // For probabilities; null: none.
};

// q["batch seq heads head_dim"], k and v with the axes batch, key_seq, kv_heads and head_dim in any
// order -> ["batch seq heads head_dim"]. Heads are grouped as in attention().
Tensor attention_by_scores(const Tensor& q, Tensor k, Tensor v, const ScoreOptions& options);

// The mask of attention() with these options between whole sequences; invalid if nothing is masked.
Tensor attention_mask(const Axis& seq, const Axis& key_seq, const AttentionOptions& options);

}  // namespace tessera
