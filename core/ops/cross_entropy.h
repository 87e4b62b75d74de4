// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of logits against integer labels, fused: probabilities are never stored.
#pragma once

#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

struct CrossEntropyOptions {
  double label_smoothing = 0.0;  // ε: target (1-ε)·onehot + ε/vocab.
  double z_loss = 0.0;           // Adds z_loss·logsumexp² (Chowdhery et al., 2022, §5).
  double soft_cap = 0.0;         // If > 0, first computes cap·tanh(logits/cap).
};

struct CrossEntropy {
  Tensor loss;            // f32[…]: the training loss, with smoothing and z-loss.
  Tensor log_likelihood;  // f32[…]: log p(label), without them; no gradient.
  Tensor correct;         // f32[…]: 1 where the label's logit is the largest; no gradient.
};

// logits["… vocab"], labels i32[…]. If `axis` is split, one maximum and one sum per row are reduced
// over its mesh axes.
CrossEntropy cross_entropy(Operand logits, Operand labels, std::string_view axis,
                           const CrossEntropyOptions& options = {});

// Computes the part of one shard of a split vocabulary, for cross_entropy only. Returns terms along
// a leading axis "terms": with z the capped logits, the sum of exp(z - maximum), the label's logit
// before capping, and, if requested, the sum of z. They are a partial sum over the mesh axes that
// split the vocabulary, so that one reduction serves all terms. `maximum` (f32, over all shards)
// only keeps the numbers in range: it has no gradient.
enum class ShardTotal { kNone, kOfLogits };
Tensor cross_entropy_shard(Operand logits, Operand labels, Operand maximum, std::string_view axis,
                           double soft_cap, ShardTotal total);

namespace key {
inline constexpr AttributeName<double> kLabelSmoothing{"label_smoothing"}, kZLoss{"z_loss"},
    kSoftCap{"soft_cap"};
inline constexpr AttributeName<bool> kTotal{"total"};  // ShardTotal::kOfLogits.
}  // namespace key
extern const Op kCrossEntropyOp, kCrossEntropyGradOp, kCrossEntropyShardOp,
    kCrossEntropyShardGradOp;

}  // namespace tessera
