// SPDX-License-Identifier: Apache-2.0
// Key heads for query heads that are split further than there are key heads: each is repeated, so
// that every device has the one its query heads read; and the rule that ops check. Not an op of its
// own.
#pragma once

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

// Operand `key` has kv_heads for the heads of operand `query`: a divisor of their number, and split
// as they are, unless there is but one, which all share.
void check_heads(const InferContext& context, size_t query, size_t key);

// x["… kv_heads …"] with its unsplit kv_heads repeated to as many as the devices that split `heads`
// and split like it; x itself where it is split already, or could be, or nothing is. The gradient
// is a pending sum over those devices. Error where the key heads do not divide the devices.
Tensor shared_heads(Operand x, const Axis& heads);

}  // namespace tessera
