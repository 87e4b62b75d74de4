// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of logits against integer labels, fused: probabilities are never stored.
#pragma once

#include <string_view>

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

struct CrossEntropyOptions {
  double label_smoothing = 0.0;  // ε: target (1-ε)·onehot + ε/vocab.
  double z_loss = 0.0;           // Adds z_loss·logsumexp² (Chowdhery et al., 2022, §5).
  double soft_cap = 0.0;         // cap·tanh(logits/cap) first, if > 0.
};

struct CrossEntropy {
  Tensor loss;            // f32[…]: what is optimised, smoothing and z-loss included.
  Tensor log_likelihood;  // f32[…]: log p(label), without them; no gradient.
  Tensor correct;         // f32[…]: 1 where the label's logit is the largest; no gradient.
};

// logits["… vocab"], labels i32[…]. Where `axis` is split, a maximum and one sum are reduced over
// its mesh axes, each with an entry a row.
CrossEntropy cross_entropy(Operand logits, Operand labels, std::string_view axis,
                           const CrossEntropyOptions& options = {});

extern const OpDef kCrossEntropyGradOp, kCrossEntropyOp;

}  // namespace tessera
