// SPDX-License-Identifier: Apache-2.0
#include "layers/bias.h"

#include "core/ops/elementwise.h"

namespace tessera {

template class HolderOf<UnaryLayer, Bias::HParams>;

namespace {

const TemplateRegistrar<UnaryLayer, Bias> kRegisterBias;

}  // namespace

Bias::Bias(const HParams& p) : UnaryLayer(p.dtypes, p.rules) {
  b_ = weight("b", {{p.axis, p.dims.get()}}, zeros());
}

Tensor Bias::fprop(Tensor x) const {
  const LayerScope scope(*this);
  return x + param_like(b_, x);
}

}  // namespace tessera
