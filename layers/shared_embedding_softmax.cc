// SPDX-License-Identifier: Apache-2.0
#include "layers/shared_embedding_softmax.h"

#include <cmath>

#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/reshard.h"

namespace tessera {

template class HolderOf<BaseSoftmax, SharedEmbeddingSoftmax::HParams>;

namespace {

const TemplateRegistrar<BaseSoftmax, SharedEmbeddingSoftmax> kRegisterSharedEmbeddingSoftmax;

}  // namespace

SharedEmbeddingSoftmax::SharedEmbeddingSoftmax(const HParams& p)
    : BaseSoftmax(p.dtypes, p.rules, p.loss), p_(p) {
  w_ = weight("w", {{"vocab", p.vocab_size.get()}, {"embed", p.model_dims.get()}},
              p.params_init.get_or(WeightInit{}));
  if (p.use_bias) bias_ = weight("b", {{"vocab", p.vocab_size.get()}}, zeros());
}

Tensor SharedEmbeddingSoftmax::embed_ids(Tensor ids) const {
  const LayerScope scope(*this);
  Tensor rows = place(gather(param(w_), ids, "vocab"), "residual");
  if (!p_.scale_sqrt_depth) return rows;
  return scale(rows, std::sqrt(static_cast<double>(p_.model_dims.get())));
}

BaseSoftmax::Projection SharedEmbeddingSoftmax::projection() const {
  return {param(w_), bias_.valid() ? param(bias_) : Tensor()};
}

}  // namespace tessera
