// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm over one axis; statistics and arithmetic in f32, result in x's dtype. A
// split `axis` takes the plain path, whose means are summed across devices: scale and bias are then
// split as it is.
#pragma once

#include <string_view>

#include "core/graph/op.h"
#include "core/graph/tensor.h"

namespace tessera {

// x·rsqrt(mean(x²) + epsilon)·scale. Zhang and Sennrich, 2019. `scale` has only `axis`; it may be
// invalid (no scale).
Tensor rms_norm(Operand x, const Tensor& scale, std::string_view axis, double epsilon);

// (x - mean)·rsqrt(variance + epsilon)·scale + bias. Ba et al., 2016. `bias` may be invalid.
Tensor layer_norm(Operand x, const Tensor& scale, const Tensor& bias, std::string_view axis,
                  double epsilon);

extern const OpDef kRmsNormGradOp, kLayerNormGradOp, kRmsNormOp, kLayerNormOp;

}  // namespace tessera
