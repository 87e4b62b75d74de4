// SPDX-License-Identifier: Apache-2.0
// Attention whose probabilities are dropped out, made of ops that hold all scores of a batch: the
// fused op (core/ops/attention.h) has none to drop. For training with attention dropout only.
#pragma once

#include "core/ops/attention.h"
#include "layers/layer.h"

namespace tessera {

// As attention(q, k, v, options), with `dropout` applied to the softmax.
Tensor attention_by_scores(Tensor q, Tensor k, Tensor v, const AttentionOptions& options,
                           const UnaryLayer& dropout);

}  // namespace tessera
