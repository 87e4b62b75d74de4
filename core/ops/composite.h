// SPDX-License-Identifier: Apache-2.0
// What definitions of composite ops share: axis order, wide arithmetic, sums over all other axes.
// Private to ops/; not an op.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/tensor.h"
#include "core/graph/typing.h"

namespace tessera {

// The dtype composites compute and keep statistics in: f32 (f64 stays f64).
DType wide_dtype(DType dtype);
Tensor widened(const Tensor& x);
// x in `dtype`; itself if it is that already.
Tensor as_dtype(const Tensor& x, DType dtype);

// x with `axis` moved last, and a result put back in the axis order of `like`; no node where
// nothing moves. Composite ops reduce over their last axis.
Tensor axis_last(Operand x, std::string_view axis);
Tensor in_order_of(Operand x, const Type& like);

// Sums over every axis but `axis`.
Tensor sum_to_axis(const Tensor& x, std::string_view axis);

// The type without one of its axes, of another dtype.
Type without_axis(Type type, std::string_view axis, DType dtype);

// The last axis of operand `i`, which must have this name and be unsplit.
const Axis& unsplit_last_axis_of(const InferContext& context, size_t i, std::string_view name);

// Operand `i` must be like this: same axes, sizes and splits in the same order (any dtype).
void check_same_axes(const InferContext& context, size_t i, const std::vector<Axis>& expected);

// A sum over every axis of `summed` but `axis`: partial over the mesh axes that split them.
Type sum_to_axis_type(const InferContext& context, const Type& summed, std::string_view axis,
                      DType dtype);

}  // namespace tessera
