// SPDX-License-Identifier: Apache-2.0
// Table look-up by integer ids, and its gradient. Typed exactly as einsum(one_hot(ids), table).
#pragma once

#include <string_view>

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

// table["vocab embed"], ids["batch seq"] (i32) -> ["batch seq embed"]: rows of `axis` of the table.
// Ids are checked on the host where batches are made; on a device an id outside the axis gives 0.
Tensor gather(Operand table, Operand ids, std::string_view axis);

// The reverse: adds rows of `updates` ["batch seq embed"] at `ids` into zeros with `axis`, which
// takes the place of the ids' axes. Sums in f32, in a fixed order.
Tensor scatter_add(Operand updates, Operand ids, Axis axis);

// x["… axis"], ids[…] -> […]: one element of `axis` for each id. Gradient: a one-hot product.
Tensor pick(Operand x, Operand ids, std::string_view axis);

extern const OpDef kGatherOp, kScatterAddOp, kPickOp;

}  // namespace tessera
