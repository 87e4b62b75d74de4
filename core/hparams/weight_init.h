// SPDX-License-Identifier: Apache-2.0
// How a weight is initialised: a distribution by name and its scale. A description only; drawing
// the numbers is the layers' business. As text: "kind=gaussian,scale=0.02".
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/hparams/fields.h"

namespace tessera {

// "Fan in" and "fan out" are a weight's numbers of inputs and outputs, "dim 0" the size of its
// first axis. Truncation is at two standard deviations.
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
  kScaledDeltaOrthogonal,        // an orthogonal matrix times scale, at a kernel's centre
};

constexpr std::array<EnumName<InitKind>, 16> enum_names(InitKind) {
  using enum InitKind;
  return {{{kConstant, "constant"},
           {kGaussian, "gaussian"},
           {kUniform, "uniform"},
           {kTruncatedGaussian, "truncated_gaussian"},
           {kXavier, "xavier"},
           {kGaussianSqrtDim, "gaussian_sqrt_dim"},
           {kUniformSqrtDim, "uniform_sqrt_dim"},
           {kTruncatedGaussianSqrtDim, "truncated_gaussian_sqrt_dim"},
           {kGaussianSqrtFanIn, "gaussian_sqrt_fan_in"},
           {kGaussianSqrtFanOut, "gaussian_sqrt_fan_out"},
           {kGaussianSqrtFanAvg, "gaussian_sqrt_fan_avg"},
           {kUniformSqrtFanAvg, "uniform_sqrt_fan_avg"},
           {kTruncatedGaussianSqrtFanIn, "truncated_gaussian_sqrt_fan_in"},
           {kTruncatedGaussianSqrtFanOut, "truncated_gaussian_sqrt_fan_out"},
           {kUniformUnitScaling, "uniform_unit_scaling"},
           {kScaledDeltaOrthogonal, "scaled_delta_orthogonal"}}};
}

struct WeightInit {
  static constexpr std::string_view kName = "WeightInit";
  InitKind kind = InitKind::kXavier;
  double scale = 1.0;
  FIELDS(kind, scale)
  bool operator==(const WeightInit&) const = default;
};

// Xavier for a residual network of this depth (Zhang et al., "Fixup initialization", 2019).
WeightInit xavier_with_fixup(double scale, double depth, double layers_per_residual_block);

WeightInit parse_weight_init(std::string_view text);

}  // namespace tessera
