// SPDX-License-Identifier: Apache-2.0
#include "layers/feed_forward/activations.h"

#include <tuple>

#include "core/ops/generator.h"

namespace tessera {

template class HolderOf<Activation, ReLU::HParams>;
template class HolderOf<Activation, SiLU::HParams>;
template class HolderOf<Activation, GELU::HParams>;

namespace {

template <typename... Activations>
using Registrars = std::tuple<TemplateRegistrar<Activation, Activations>...>;
const Registrars<Identity, ReLU, ReLU6, SquaredReLU, CubedReLU, LeakyReLU, GELU, SiLU, Swish,
                 Sigmoid, Tanh, Softplus, Exp>
    kRegisterActivations;

}  // namespace

Tensor identity(Operand x) { return x.tensor; }

Tensor relu6(Operand x) { return minimum(relu(x), constant(6.0, x.tensor.dtype())); }

Tensor squared_relu(Operand x) { return square(relu(x)); }

Tensor cubed_relu(Operand x) {
  const Tensor positive = relu(x);
  return square(positive) * positive;
}

Tensor LeakyReLU::fprop(Tensor x) const { return maximum(x, scale(x, p_.negative_slope)); }

Tensor Swish::fprop(Tensor x) const {
  if (p_.limit.has()) x = minimum(x, constant(p_.limit.get(), x.dtype()));
  return x * sigmoid(x * p_.slope);
}

Tensor GELU::fprop(Tensor x) const { return p_.approximate ? gelu_tanh(x) : gelu(x); }

}  // namespace tessera
