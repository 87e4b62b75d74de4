// SPDX-License-Identifier: Apache-2.0
#include "layers/rms_norm.h"

#include "core/ops/elementwise.h"
#include "core/ops/norm.h"

namespace tessera {

template class HolderOf<UnaryLayer, RmsNorm::HParams>;

namespace {

const TemplateRegistrar<UnaryLayer, RmsNorm> kRegisterRmsNorm;

}  // namespace

RmsNorm::RmsNorm(const HParams& p) : UnaryLayer(p.dtypes, p.rules), p_(p) {
  if (p.use_scale)
    scale_ = weight("scale", {{p.axis, p.model_dims.get()}}, p.direct_scale ? ones() : zeros());
}

Tensor RmsNorm::fprop(Tensor x) const {
  const LayerScope scope(*this);
  Tensor multiplier;
  if (p_.use_scale) {
    multiplier = param_like(scale_, x, DType::kF32);
    if (!p_.direct_scale) multiplier = multiplier + 1.0;
  }
  return rms_norm(x, multiplier, p_.axis, p_.epsilon);
}

}  // namespace tessera
