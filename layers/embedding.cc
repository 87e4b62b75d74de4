// SPDX-License-Identifier: Apache-2.0
#include "layers/embedding.h"

#include <cmath>

#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/reshard.h"

namespace tessera {

template class HolderOf<Embedding, Embedding::HParams>;

namespace {

const TemplateRegistrar<Embedding, Embedding> kRegisterEmbedding;

}  // namespace

Embedding::Embedding(const HParams& p) : Layer(p.dtypes, p.rules), p_(p) {
  table_ = weight("w", {{"vocab", p.vocab_size.get()}, {"embed", p.model_dims.get()}},
                  p.params_init.get_or(WeightInit{}));
}

Tensor Embedding::fprop(Tensor ids) const {
  const LayerScope scope(*this);
  Tensor rows = place(gather(param(table_), ids, "vocab"), "residual");
  if (!p_.scale_sqrt_depth) return rows;
  return scale(rows, std::sqrt(static_cast<double>(p_.model_dims.get())));
}

}  // namespace tessera
