// SPDX-License-Identifier: Apache-2.0
// Leaves: parts of a batch that a mesh-invariant run computes one by one (tasks/task/leaves.h). The
// devices along the mesh axes that split the batch have a leaf each. A value of one leaf differs
// along these axes although its type does not say so: own_leaf makes it from an axis of leaves, and
// all_leaves an axis of leaves from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/trace.h"

namespace tessera {

inline constexpr std::string_view kLeafAxis = "leaf";

// x["… leaf/data …"] -> ["… …"]: this device's leaf. Error unless each device has one.
Tensor own_leaf(Operand x);

// The values of all leaves, x["… …"] -> ["leaf/data … …"], or ["layers leaf/data …"] for a stack.
Tensor all_leaves(Operand x, const std::vector<std::string>& mesh_axes);

// ((sum + leaf 0 of x) + leaf 1 of x) + …, where x has the axes of `sum` and an unsplit one of
// leaves.
Tensor add_leaves(Operand sum, Operand x);

// Returns the type without splits over these mesh axes.
Type unsplit_over(Type type, const std::vector<std::string>& mesh_axes);

extern const Op kOwnLeafOp, kAllLeavesOp, kAddLeavesOp;

}  // namespace tessera
