// SPDX-License-Identifier: Apache-2.0
// Pointwise nonlinearities as layers, so that an experiment or --set can name one. No weights.
#pragma once

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

// A layer of its own kind, so that activation_tpl accepts activations only.
class Activation : public UnaryLayer {
 protected:
  Activation() : UnaryLayer(Field<DTypePolicy>{}) {}
};

class Identity final : public Activation {
 public:
  struct HParams {
    using Instance = Identity;
    static constexpr std::string_view kName = "Identity";
    FIELDS()
  };
  explicit Identity(const HParams& p);
  Tensor fprop(Tensor x) const override;
};

class ReLU final : public Activation {
 public:
  struct HParams {
    using Instance = ReLU;
    static constexpr std::string_view kName = "ReLU";
    FIELDS()
  };
  explicit ReLU(const HParams& p);
  Tensor fprop(Tensor x) const override;
};

// min(max(x, 0), 6).
class ReLU6 final : public Activation {
 public:
  struct HParams {
    using Instance = ReLU6;
    static constexpr std::string_view kName = "ReLU6";
    FIELDS()
  };
  explicit ReLU6(const HParams& p);
  Tensor fprop(Tensor x) const override;
};

// max(x, 0)² (So et al., 2021).
class SquaredReLU final : public Activation {
 public:
  struct HParams {
    using Instance = SquaredReLU;
    static constexpr std::string_view kName = "SquaredReLU";
    FIELDS()
  };
  explicit SquaredReLU(const HParams& p);
  Tensor fprop(Tensor x) const override;
};

class CubedReLU final : public Activation {
 public:
  struct HParams {
    using Instance = CubedReLU;
    static constexpr std::string_view kName = "CubedReLU";
    FIELDS()
  };
  explicit CubedReLU(const HParams& p);
  Tensor fprop(Tensor x) const override;
};

// max(x, slope·x).
class LeakyReLU final : public Activation {
 public:
  struct HParams {
    using Instance = LeakyReLU;
    static constexpr std::string_view kName = "LeakyReLU";
    double negative_slope = 0.01;
    FIELDS(negative_slope)
  };
  explicit LeakyReLU(const HParams& p);
  Tensor fprop(Tensor x) const override;

 private:
  HParams p_;
};

// x·Φ(x), or its tanh approximation as GPT-2 and Pax use it (Hendrycks and Gimpel, 2016).
class GELU final : public Activation {
 public:
  struct HParams {
    using Instance = GELU;
    static constexpr std::string_view kName = "GELU";
    bool approximate = true;
    FIELDS(approximate)
  };
  explicit GELU(const HParams& p);
  Tensor fprop(Tensor x) const override;

 private:
  HParams p_;
};

// x·sigmoid(x), also called swish.
class SiLU final : public Activation {
 public:
  struct HParams {
    using Instance = SiLU;
    static constexpr std::string_view kName = "SiLU";
    FIELDS()
  };
  explicit SiLU(const HParams& p);
  Tensor fprop(Tensor x) const override;
};

class Sigmoid final : public Activation {
 public:
  struct HParams {
    using Instance = Sigmoid;
    static constexpr std::string_view kName = "Sigmoid";
    FIELDS()
  };
  explicit Sigmoid(const HParams& p);
  Tensor fprop(Tensor x) const override;
};

class Tanh final : public Activation {
 public:
  struct HParams {
    using Instance = Tanh;
    static constexpr std::string_view kName = "Tanh";
    FIELDS()
  };
  explicit Tanh(const HParams& p);
  Tensor fprop(Tensor x) const override;
};

class Softplus final : public Activation {
 public:
  struct HParams {
    using Instance = Softplus;
    static constexpr std::string_view kName = "Softplus";
    FIELDS()
  };
  explicit Softplus(const HParams& p);
  Tensor fprop(Tensor x) const override;
};

class Exp final : public Activation {
 public:
  struct HParams {
    using Instance = Exp;
    static constexpr std::string_view kName = "Exp";
    FIELDS()
  };
  explicit Exp(const HParams& p);
  Tensor fprop(Tensor x) const override;
};

extern template class HolderOf<Activation, Identity::HParams>;
extern template class HolderOf<Activation, ReLU::HParams>;
extern template class HolderOf<Activation, ReLU6::HParams>;
extern template class HolderOf<Activation, SquaredReLU::HParams>;
extern template class HolderOf<Activation, CubedReLU::HParams>;
extern template class HolderOf<Activation, LeakyReLU::HParams>;
extern template class HolderOf<Activation, GELU::HParams>;
extern template class HolderOf<Activation, SiLU::HParams>;
extern template class HolderOf<Activation, Sigmoid::HParams>;
extern template class HolderOf<Activation, Tanh::HParams>;
extern template class HolderOf<Activation, Softplus::HParams>;
extern template class HolderOf<Activation, Exp::HParams>;

}  // namespace tessera
