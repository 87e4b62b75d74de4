// SPDX-License-Identifier: Apache-2.0
// What each shard of a vocabulary adds to the cross-entropy, in one pass over its logits. Made by
// cross_entropy (cross_entropy.h); no layer calls it.
#pragma once

#include <string_view>

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

// With z the logits after capping, along a leading axis "terms": the sum of exp(z - maximum), the
// label's logit (uncapped), and, if asked for, the sum of z. A pending sum over the mesh axes that
// split the vocabulary, so that all terms cross in one reduction. `maximum` (f32, of all shards' z)
// only keeps the numbers in range: it has no gradient.
enum class ShardTotal { kNone, kOfLogits };
Tensor cross_entropy_shard(Operand logits, Operand labels, Operand maximum, std::string_view axis,
                           double soft_cap, ShardTotal total);

extern const OpDef kCrossEntropyShardGradOp, kCrossEntropyShardOp;

}  // namespace tessera
