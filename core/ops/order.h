// SPDX-License-Identifier: Apache-2.0
// Ops that depend on the order of elements along an axis: sorting, the largest elements, and
// running sums. Nothing here depends on the mesh: the axis must be unsplit, and equal elements keep
// their order along it. -0 equals 0, and NaN counts as greater than every number, so that it comes
// last in ascending order and first in descending order.
#pragma once

#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

enum class SortOrder { kAscending, kDescending };

// x["… axis …"] (floating or i32) -> i32 of the same axes: the positions of the elements along
// `axis` in the order of their values. Stable in both orders.
Tensor argsort(Operand x, std::string_view axis, SortOrder order = SortOrder::kAscending);
// x with the elements along `axis` in order.
Tensor sort(Operand x, std::string_view axis, SortOrder order = SortOrder::kAscending);

struct TopK {
  Tensor values;   // x["… axis …"] -> "… k …".
  Tensor indices;  // i32, their positions on `axis`.
};
// The k.size largest elements along `axis`, in descending order; of equal ones those with the lower
// index. The unsplit axis `k` ({"top_k", 2}) takes the place of `axis`. Error if `axis` is shorter.
TopK top_k(Operand x, std::string_view axis, const Axis& k);

// i32, x["… axis …"] -> "… …": the position of the largest element along `axis`; of equal ones the
// lowest. No gradient.
Tensor argmax(Operand x, std::string_view axis);

struct CumulativeSumOptions {
  bool exclusive = false;  // Each sum without its own element.
  bool reverse = false;    // Sums from the end of the axis.
};
// The sums of the elements along `axis` up to each one. Floating elements are added in f32 (f64 in
// f64), in a fixed order; i32 exactly, modulo 2^32. Linear: a partial sum stays partial.
Tensor cumulative_sum(Operand x, std::string_view axis, const CumulativeSumOptions& options = {});

namespace key {
inline constexpr AttributeName<bool> kDescending{"descending"}, kExclusive{"exclusive"},
    kReverse{"reverse"};
}  // namespace key
// kSortOp has the operands x and its argsort; kTopKOp returns the indices.
extern const Op kArgsortOp, kSortOp, kTopKOp, kCumulativeSumOp;

}  // namespace tessera
