// SPDX-License-Identifier: Apache-2.0
// Table lookup by integer ids, and its gradient. Typed like einsum(one_hot(ids), table).
#pragma once

#include <cstdint>
#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// table["vocab embed"], ids["batch seq"] (i32) -> ["batch seq embed"]: rows of `axis` of the table.
// First axes that both have are batch axes: table["batch seq embed"], ids["batch slots"] ->
// ["batch slots embed"] selects rows of each example. The host checks ids when it makes a batch; on
// a device an id outside the axis gives zeros.
Tensor gather(Operand table, Operand ids, std::string_view axis);

// The transpose of gather: adds rows of `updates` ["batch seq embed"] at `ids` to zeros, where
// `axis` replaces the axes of ids after its first `batch_axes`. Sums in f32, in a fixed order.
Tensor scatter_add(Operand updates, Operand ids, Axis axis, int64_t batch_axes = 0);

// x["… axis …"], ids["… …"] -> "… …": the element of `axis` at each id. Ids may have another axis
// in the place of `axis`, or a part of it: x["… axis …"], ids["… k …"] -> "… k …", k elements for
// each. An id outside the axis gives zero.
Tensor pick(Operand x, Operand ids, std::string_view axis);

// The transpose of pick with several ids: x["… k …"], ids["… k …"] -> "… axis …", where `axis`
// replaces `k`. Adds each element of x at its id to zeros; for an axis k that is short, since each
// element of the result looks at all k ids. Sums in f32, in the order of the ids.
Tensor scatter_along(Operand x, Operand ids, std::string_view k, Axis axis);

extern const Op kGatherOp, kScatterAddOp, kPickOp, kScatterAlongOp;

}  // namespace tessera
