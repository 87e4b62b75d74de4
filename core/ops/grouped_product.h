// SPDX-License-Identifier: Apache-2.0
// Products of rows with matrices selected by integer ids: the experts of a mixture of experts
// without a capacity ("dropless", Gale et al., "MegaBlocks", 2022). Typed like einsum with
// one_hot(ids), but each row is multiplied by its own matrix only.
#pragma once

#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"
#include "core/ops/einsum.h"

namespace tessera {

// rows["batch seq top_k embed"], weights["experts embed mlp"], ids i32["batch seq top_k"] ->
// ["batch seq top_k mlp"]: each row times the matrix of `axis` (the first axis of weights) that its
// id names, over one contracted axis. rows may lack axes of ids: from x["batch seq embed"] each
// position is read for every choice. Ids are positions in the whole axis, also where it is split;
// an id outside it gives zeros.
//
// Errors: other axes; ids that are partial, or split over a mesh axis of `axis`.
Tensor grouped_product(Operand rows, Operand weights, Operand ids, std::string_view axis,
                       const Over& contracted);

// a["batch seq top_k embed"], b["batch seq top_k mlp"], ids i32["batch seq top_k"] ->
// ["experts embed mlp"]: for each position of `axis` the sum of the outer products of the rows with
// its id, in f32 and in the order of ids. The gradient of the weights. Either may lack axes of ids.
Tensor grouped_outer_product(Operand a, Operand b, Operand ids, Axis axis);

namespace key {
// One of the last two axes of weights.
inline constexpr AttributeName<std::string> kContractedAxis{"contracted"};
}  // namespace key
// Operands: weights, rows, ids; and a, b, ids.
extern const Op kGroupedProductOp, kGroupedOuterProductOp;

}  // namespace tessera
