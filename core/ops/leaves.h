// SPDX-License-Identifier: Apache-2.0
// Leaves: parts of a batch that a mesh-invariant run computes one by one (tasks/task/leaves.h). At
// a time, the devices along the mesh axes that split the batch have a leaf each. Between own_leaf
// and add_leaves a value may differ along these axes although its type does not say so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/trace.h"

namespace tessera {

// x["… leaf/data …"], with one leaf for each device along the mesh axes that split the axis: this
// device's leaf, x["… …"]. Error if there are more or fewer.
Tensor own_leaf(Operand x, std::string_view axis);

// sum + term of leaf 0 + term of leaf 1 + …, in this order, one addition after the other. `term` is
// this device's; the leaves are numbered along `mesh_axes`, the first outermost. The sum may be
// split over them, innermost in its axes.
Tensor add_leaves(Operand sum, const Tensor& term, const std::vector<std::string>& mesh_axes);

// The leaves that lowering has exchanged: x["sizes… leaf …"] added to `sum`, leaf by leaf.
namespace key {
// The place along the axis of each leaf, in the order of the leaves.
inline constexpr AttributeName<std::vector<int64_t>> kPlaces{"places"};
}  // namespace key
inline constexpr std::string_view kLeafAxis = "leaf";

extern const Op kOwnLeafOp, kAddLeavesOp, kAddExchangedOp;

}  // namespace tessera
