// SPDX-License-Identifier: Apache-2.0
// Means, and RMSNorm, LayerNorm, softmax and logsumexp over one axis: statistics and arithmetic in
// f32, result in x's dtype. Norms over a split axis run as their decomposition, whose means are
// summed across devices; scale and bias must then be split like x.
#pragma once

#include <string>
#include <string_view>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

Tensor reduce_mean(Operand x, std::string_view axes);  // In x's dtype.

// x·rsqrt(mean(x²) + epsilon)·scale (Zhang and Sennrich, 2019). `scale` has only `axis`; invalid:
// no scale.
Tensor rms_norm(Operand x, const Tensor& scale, std::string_view axis, double epsilon);

// (x - mean)·rsqrt(variance + epsilon)·scale + bias (Ba et al., 2016). Invalid bias: none.
Tensor layer_norm(Operand x, const Tensor& scale, const Tensor& bias, std::string_view axis,
                  double epsilon);

Tensor softmax(Operand x, std::string_view axis);

// Computes log Σ exp(x) over `axis` without overflow; -inf where all elements are -inf. Over a
// split axis the maxima and the sums are reduced. Its gradient is the softmax.
Tensor logsumexp(Operand x, std::string_view axis);

// A norm and the add before it, or the gradient of a norm and the add after it
// (core/compile/fuse/fuse.h). Never traced.
extern const Op kFusedNormOp;

// The attributes of rms_norm, layer_norm and their gradients.
struct NormAttributes {
  explicit NormAttributes(const Attributes& attributes);
  std::string axis;
  double epsilon;
  bool centered;             // layer_norm.
  bool has_scale, has_bias;  // Which operands there are.
};

extern const Op kRmsNormOp, kRmsNormGradOp, kLayerNormOp, kLayerNormGradOp, kSoftmaxOp,
    kSoftmaxGradOp;

}  // namespace tessera
