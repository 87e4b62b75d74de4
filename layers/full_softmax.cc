// SPDX-License-Identifier: Apache-2.0
#include "layers/full_softmax.h"

namespace tessera {

template class HolderOf<BaseSoftmax, FullSoftmax::HParams>;

namespace {

const TemplateRegistrar<BaseSoftmax, FullSoftmax> kRegisterFullSoftmax;

}  // namespace

FullSoftmax::FullSoftmax(const HParams& p) : BaseSoftmax(p.dtypes, p.rules, p.loss) {
  w_ = weight("w", {{"embed", p.model_dims.get()}, {"vocab", p.vocab_size.get()}},
              p.params_init.get_or(WeightInit{}));
  if (p.use_bias) bias_ = weight("b", {{"vocab", p.vocab_size.get()}}, zeros());
}

BaseSoftmax::Projection FullSoftmax::projection() const {
  return {param(w_), bias_.valid() ? param(bias_) : Tensor()};
}

}  // namespace tessera
