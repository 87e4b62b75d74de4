// SPDX-License-Identifier: Apache-2.0
#include "layers/activations.h"

#include "core/ops/elementwise.h"
#include "core/ops/generator.h"

namespace tessera {

template class HolderOf<Activation, Identity::HParams>;
template class HolderOf<Activation, ReLU::HParams>;
template class HolderOf<Activation, ReLU6::HParams>;
template class HolderOf<Activation, SquaredReLU::HParams>;
template class HolderOf<Activation, CubedReLU::HParams>;
template class HolderOf<Activation, LeakyReLU::HParams>;
template class HolderOf<Activation, GELU::HParams>;
template class HolderOf<Activation, SiLU::HParams>;
template class HolderOf<Activation, Sigmoid::HParams>;
template class HolderOf<Activation, Tanh::HParams>;
template class HolderOf<Activation, Softplus::HParams>;
template class HolderOf<Activation, Exp::HParams>;

namespace {

const TemplateRegistrar<Activation, Identity> kIdentity;
const TemplateRegistrar<Activation, ReLU> kReLU;
const TemplateRegistrar<Activation, ReLU6> kReLU6;
const TemplateRegistrar<Activation, SquaredReLU> kSquaredReLU;
const TemplateRegistrar<Activation, CubedReLU> kCubedReLU;
const TemplateRegistrar<Activation, LeakyReLU> kLeakyReLU;
const TemplateRegistrar<Activation, GELU> kGELU;
const TemplateRegistrar<Activation, SiLU> kSiLU;
const TemplateRegistrar<Activation, Sigmoid> kSigmoid;
const TemplateRegistrar<Activation, Tanh> kTanh;
const TemplateRegistrar<Activation, Softplus> kSoftplus;
const TemplateRegistrar<Activation, Exp> kExp;

}  // namespace

Identity::Identity(const HParams&) {}
ReLU::ReLU(const HParams&) {}
ReLU6::ReLU6(const HParams&) {}
SquaredReLU::SquaredReLU(const HParams&) {}
CubedReLU::CubedReLU(const HParams&) {}
LeakyReLU::LeakyReLU(const HParams& p) : p_(p) {}
GELU::GELU(const HParams& p) : p_(p) {}
SiLU::SiLU(const HParams&) {}
Sigmoid::Sigmoid(const HParams&) {}
Tanh::Tanh(const HParams&) {}
Softplus::Softplus(const HParams&) {}
Exp::Exp(const HParams&) {}

Tensor Identity::fprop(Tensor x) const { return x; }

Tensor ReLU::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return relu(x);
}

Tensor ReLU6::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return minimum(relu(x), constant(6.0, x.dtype()));
}

Tensor SquaredReLU::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return square(relu(x));
}

Tensor CubedReLU::fprop(Tensor x) const {
  const LayerScope scope(*this);
  const Tensor positive = relu(x);
  return square(positive) * positive;
}

Tensor LeakyReLU::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return maximum(x, scale(x, p_.negative_slope));
}

Tensor GELU::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return p_.approximate ? gelu_tanh(x) : gelu(x);
}

Tensor SiLU::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return silu(x);
}

Tensor Sigmoid::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return sigmoid(x);
}

Tensor Tanh::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return tanh(x);
}

Tensor Softplus::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return softplus(x);
}

Tensor Exp::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return exp(x);
}

}  // namespace tessera
