// SPDX-License-Identifier: Apache-2.0
#include "layers/rotary_embedding.h"

#include "core/graph/ops/rotary.h"

namespace tessera {
namespace {

const TemplateRegistrar<RotaryPositionEmbedding, RotaryPositionEmbedding> kRegister;

}  // namespace

RotaryPositionEmbedding::RotaryPositionEmbedding(const HParams& p)
    : Layer(Field<DTypePolicy>{}), p_(p) {}

Tensor RotaryPositionEmbedding::fprop(Tensor x, Tensor positions) const {
  const LayerScope scope(*this);
  return rotary(x, positions, "head_dim", p_.max_timescale, p_.min_timescale,
                p_.interleaved ? RotaryStyle::kInterleaved : RotaryStyle::kHalf);
}

}  // namespace tessera
