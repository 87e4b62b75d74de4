// SPDX-License-Identifier: Apache-2.0
// Functions made of several ops, which composite ops share: means, wider arithmetic, axis order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// The dtype of arithmetic and statistics inside composite ops: f32; f64 for f64.
DType wide_dtype(DType dtype);
Tensor widened(const Tensor& x);
// x in `dtype`; itself if it is that already.
Tensor as_dtype(const Tensor& x, DType dtype);

// x with `axis` moved last, and x in the axis order of `like`; x itself if the order is right.
// Composite ops reduce over their last axis.
Tensor axis_last(Operand x, std::string_view axis);
Tensor in_order_of(Operand x, const Type& like);

Tensor reduce_mean(Operand x, std::string_view axes);

// Sums over every axis but `axis`.
Tensor sum_to_axis(const Tensor& x, std::string_view axis);

}  // namespace tessera
