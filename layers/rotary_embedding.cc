// SPDX-License-Identifier: Apache-2.0
#include "layers/rotary_embedding.h"

#include "core/ops/rotary.h"

namespace tessera {

template class HolderOf<RotaryPositionEmbedding, RotaryPositionEmbedding::HParams>;

namespace {

const TemplateRegistrar<RotaryPositionEmbedding, RotaryPositionEmbedding> kRegisterRotaryEmbedding;

}  // namespace

RotaryPositionEmbedding::RotaryPositionEmbedding(const HParams& p)
    : Layer(Field<DTypePolicy>{}), p_(p) {}

Tensor RotaryPositionEmbedding::fprop(Tensor x, Tensor positions) const {
  const LayerScope scope(*this);
  RotaryStretch stretch;
  if (p_.stretch)
    stretch = {p_.stretch->factor, p_.stretch->low, p_.stretch->high, p_.stretch->length};
  return rotary(x, positions, "head_dim", p_.max_timescale, p_.min_timescale,
                p_.interleaved ? RotaryStyle::kInterleaved : RotaryStyle::kHalf, stretch);
}

}  // namespace tessera
