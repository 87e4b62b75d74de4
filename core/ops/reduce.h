// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over named axes, accumulated in f32, and broadcasts to new axes.
#pragma once

#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

Tensor reduce_sum(Operand x, std::string_view axes);  // Over a split axis: a partial sum.
Tensor reduce_sum(Operand x);                         // Over all axes.
Tensor reduce_max(Operand x, std::string_view axes);  // Over a split axis: a partial maximum. No
                                                      // gradient: stop_gradient its operand.
// Adds axes x lacks, in `order` (names of all axes of the result; "" puts new axes first).
Tensor broadcast(Operand x, std::vector<Axis> new_axes, std::string_view order = "");

// The cotangent of a broadcast operand in the operand's axes: summed over the axes the operand
// lacks, then transposed. A sum over a split axis stays partial.
Tensor match(const Tensor& cotangent, const Tensor& primal);

namespace key {
inline constexpr AttributeName<std::vector<std::string>> kAxes{"axes"};  // Those that are reduced.
}  // namespace key
extern const Op kReduceSumOp, kReduceMaxOp, kBroadcastOp;

}  // namespace tessera
