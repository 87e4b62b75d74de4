// SPDX-License-Identifier: Apache-2.0
// Ops that rearrange elements. rename, split_axis and merge_axes are views: they move no data.
#pragma once

#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

Tensor rename(Operand x, std::string_view from, std::string_view to);
Tensor transpose(Operand x,
                 std::string_view order);  // "heads batch seq": all axes, in a new order.
// Move an axis: x with `axis` last (composite ops reduce over their last axis), and x in the axis
// order of `like`; x itself if the order is right.
Tensor axis_last(Operand x, std::string_view axis);
Tensor in_order_of(Operand x, const Type& like);
// axis -> outer inner; the outer axis takes the axis's split ("heads/mdl" of 8x64).
Tensor split_axis(Operand x, std::string_view axis, Axis outer, Axis inner);
// Adjacent axes outer, inner -> axis; the inner one must be unsplit.
Tensor merge_axes(Operand x, std::string_view outer, std::string_view inner, std::string_view axis);
// Elements [begin, end) of an unsplit axis.
Tensor slice(Operand x, std::string_view axis, int64_t begin, int64_t end);
// Adds zeros around x along an unsplit axis: the gradient of slice.
Tensor pad(Operand x, std::string_view axis, int64_t before, int64_t after);
Tensor concat(const std::vector<Tensor>& parts, std::string_view axis,
              SourceSite site = SourceSite::current());
// x["… axis …"] of two axes or more: the slices of an unsplit axis, each without the axis.
std::vector<Tensor> unbind(Operand x, std::string_view axis);
// x shifted right by one along an unsplit axis; the first element is `fill`.
Tensor shift_right(Operand x, std::string_view axis, double fill);

namespace key {
// The elements of a slice, and those around a pad.
inline constexpr AttributeName<int64_t> kBegin{"begin"}, kEnd{"end"}, kBefore{"before"},
    kAfter{"after"};
inline constexpr AttributeName<double> kFill{"fill"};
}  // namespace key
extern const Op kRenameOp, kSplitAxisOp, kMergeAxesOp, kTransposeOp, kSliceOp, kPadOp, kConcatOp,
    kShiftRightOp;
// A copy of its operand; never traced. Memory planning adds it where one value must be in two
// places: a state's next value that could not be written in place, a carry that is also saved.
extern const Op kCopyOp;

}  // namespace tessera
