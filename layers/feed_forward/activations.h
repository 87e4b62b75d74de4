// SPDX-License-Identifier: Apache-2.0
// Elementwise nonlinearities as layers, so that an experiment or --set can name one. No weights.
#pragma once

#include <string_view>

#include "core/hparams/template.h"
#include "core/ops/elementwise.h"
#include "layers/layer.h"

namespace tessera {

// A separate kind, so that activation_tpl accepts activations only.
class Activation : public UnaryLayer {};

// The activation without options that is registered as `name` and computes `function`.
template <TemplateName name, Tensor (*function)(Operand x)>
class ActivationOf final : public Activation {
 public:
  struct HParams {
    using Instance = ActivationOf;
    static constexpr std::string_view kName = name.text;
    FIELDS()
  };
  explicit ActivationOf(const HParams&) {}

 private:
  Tensor fprop(Tensor x) const override { return function(x); }
};

Tensor identity(Operand x);
Tensor relu6(Operand x);         // min(max(x, 0), 6).
Tensor squared_relu(Operand x);  // max(x, 0)² (So et al., 2021, "Primer").
Tensor cubed_relu(Operand x);

using Identity = ActivationOf<"Identity", identity>;
using ReLU = ActivationOf<"ReLU", relu>;
using ReLU6 = ActivationOf<"ReLU6", relu6>;
using SquaredReLU = ActivationOf<"SquaredReLU", squared_relu>;
using CubedReLU = ActivationOf<"CubedReLU", cubed_relu>;
using SiLU = ActivationOf<"SiLU", silu>;
using Sigmoid = ActivationOf<"Sigmoid", sigmoid>;
using Tanh = ActivationOf<"Tanh", tanh>;
using Softplus = ActivationOf<"Softplus", softplus>;
using Exp = ActivationOf<"Exp", exp>;

// Computes max(x, slope·x).
class LeakyReLU final : public Activation {
 public:
  struct HParams {
    using Instance = LeakyReLU;
    double negative_slope = 0.01;
    FIELDS(negative_slope)
  };
  explicit LeakyReLU(const HParams& p) : p_(p) {}

 private:
  Tensor fprop(Tensor x) const override;

  HParams p_;
};

// Computes x·σ(slope·x) (Swish; Ramachandran et al., 2017); x above `limit` is taken as `limit`, if
// there is one (gpt-oss).
class Swish final : public Activation {
 public:
  struct HParams {
    using Instance = Swish;
    double slope = 1.0;
    Field<double> limit;
    FIELDS(slope, About(limit, kPositive))
  };
  explicit Swish(const HParams& p) : p_(p) {}

 private:
  Tensor fprop(Tensor x) const override;

  HParams p_;
};

// Computes x·Φ(x) (Hendrycks and Gimpel, 2016), or its tanh approximation as in GPT-2 and Pax.
class GELU final : public Activation {
 public:
  struct HParams {
    using Instance = GELU;
    bool approximate = true;
    FIELDS(approximate)
  };
  explicit GELU(const HParams& p) : p_(p) {}

 private:
  Tensor fprop(Tensor x) const override;

  HParams p_;
};

extern template class HolderOf<Activation, ReLU::HParams>;
extern template class HolderOf<Activation, SiLU::HParams>;
extern template class HolderOf<Activation, GELU::HParams>;

}  // namespace tessera
