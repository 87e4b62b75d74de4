// SPDX-License-Identifier: Apache-2.0
// Values in the HParams of every layer: element types, initial weights, axis rules.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "core/base/dtype.h"
#include "core/hparams/fields.h"

namespace tessera {

// The precision of products of activations with weights.
enum class MatmulPrecision {
  kCompute,  // In the compute dtype.
  kFp8,      // Operands rounded to 8-bit floats with a scale per tensor: core/ops/fp8.h.
};

// The element types a layer works in. Written "param=f32,compute=bf16" in --set.
struct DTypePolicy {
  static constexpr std::string_view kName = "DTypePolicy";
  DType param = DType::kF32;    // Stored weights, which the optimizer updates.
  DType compute = DType::kF32;  // Activations, and weights in layers.
  DType reduce = DType::kF32;   // Gradients in collectives.
  DType output = DType::kF32;   // Logits and other outputs of the model.
  MatmulPrecision matmul = MatmulPrecision::kCompute;  // Products with weights, except logits.
  FIELDS(param, compute, reduce, output, matmul)
  bool operator==(const DTypePolicy&) const = default;
};

// Distribution of initial weights. "Fan in" and "fan out" are a weight's numbers of inputs and
// outputs, "dim 0" the size of its first axis. Truncation is at two standard deviations.
enum class InitKind {
  kConstant,                     // scale
  kGaussian,                     // N(0, scale²)
  kUniform,                      // U(-scale, scale)
  kTruncatedGaussian,            // N(0, scale²), truncated
  kXavier,                       // U(-l, l), l = scale·√(6 / (fan in + fan out))
  kGaussianSqrtDim,              // N(0, scale² / dim 0)
  kUniformSqrtDim,               // U(-l, l), l = scale / √dim 0
  kTruncatedGaussianSqrtDim,     // as kGaussianSqrtDim, truncated
  kGaussianSqrtFanIn,            // N(0, scale² / fan in)
  kGaussianSqrtFanOut,           // N(0, scale² / fan out)
  kGaussianSqrtFanAvg,           // N(0, scale² / mean of fan in and fan out)
  kUniformSqrtFanAvg,            // U(-l, l), l = scale·√(3 / mean of fan in and fan out)
  kTruncatedGaussianSqrtFanIn,   // as kGaussianSqrtFanIn, truncated
  kTruncatedGaussianSqrtFanOut,  // as kGaussianSqrtFanOut, truncated
  kUniformUnitScaling,           // U(-l, l), l = scale·√(3 / fan in)
  kScaledDeltaOrthogonal,        // scale times an orthogonal matrix at the kernel's centre
};

// Written "kind=gaussian,scale=0.02" in --set.
struct WeightInit {
  static constexpr std::string_view kName = "WeightInit";
  InitKind kind = InitKind::kXavier;
  double scale = 1.0;
  FIELDS(kind, scale)
  bool operator==(const WeightInit&) const = default;
};

// Xavier initialisation scaled for a residual network of this depth (Zhang et al., "Fixup
// initialization", 2019).
inline WeightInit xavier_with_fixup(double scale, double depth, double layers_per_residual_block) {
  return {InitKind::kXavier, scale * std::pow(depth, -0.5 / layers_per_residual_block)};
}

// A layer's own axis rules for its weights and activations (Pax: weight_split_dims_mapping,
// activation_split_dims_mapping), in the syntax of the experiment's rules: "mlp -> (mdl, data)",
// "residual: seq -> ()". They replace the experiment's rules of the axes they name, in this layer
// but not in the layers below it.
struct LayerRules {
  static constexpr std::string_view kName = "LayerRules";
  std::string weights;
  std::string activations;
  FIELDS(weights, activations)
  bool operator==(const LayerRules&) const = default;
};

}  // namespace tessera
