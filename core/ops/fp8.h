// SPDX-License-Identifier: Apache-2.0
// Matrix products of 8-bit floats: the formats E4M3 and E5M2 of Micikevicius et al., "FP8 formats
// for deep learning" (2022), with per-tensor current scaling as in NVIDIA's Transformer Engine
// (recipe Float8CurrentScaling, hybrid format, scales that are powers of two). Values are rounded
// to such a format, but stored in the dtype of their tensor.
#pragma once

#include "core/graph/graph.h"
#include "core/graph/op.h"
#include "core/ops/einsum.h"
#include "core/ops/float8_format.h"

namespace tessera {

// Rounds x to the values of an 8-bit float times a power of two, in x's dtype. `amax` is a scalar,
// the largest |element| of the whole tensor. The scale is the largest power of two for which
// amax·scale is in the range of the format; amax below 2^-100 counts as 2^-100. The result is
// q/scale, where q is x·scale rounded to nearest even. Larger x saturate: E5M2's infinities are not
// used. If amax is infinite or NaN, the result is NaN. No gradient.
//
// A power of two changes no digits: multiplying by scales and dividing the product by them rounds
// nothing, so that a product of such results has the value that 8-bit operands and a scaled result
// give, up to the order of the sums.
Tensor round_e4m3(Operand x, Operand amax);
Tensor round_e5m2(Operand x, Operand amax);

// Returns the largest |element| of all shards of x: a scalar in x's dtype, replicated. No gradient.
Tensor absolute_maximum(Operand x);

// einsum of two operands that are rounded to E4M3. Its gradient rounds the cotangent to E5M2, which
// has a wider range and fewer digits, and the other operand to E4M3 as before; the rounding itself
// has the gradient of the identity. Sums are in f32, the result has the operands' dtype. Operands
// are not partial sums.
//
// The op's operands are a, b and their absolute maxima; its attributes those of einsum, and the
// formats of a and b: "e4m3" or "e5m2".
Tensor fp8_product(Operand a, Operand b, const Over& contracted);

namespace key {
inline constexpr AttributeName<std::vector<std::string>> kFormats{"formats"};
}  // namespace key
extern const Op kRoundE4M3Op, kRoundE5M2Op, kAbsoluteMaximumOp, kFp8ProductOp;

}  // namespace tessera
