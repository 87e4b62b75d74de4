// SPDX-License-Identifier: Apache-2.0
#include "layers/layer_norm.h"

#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/norm.h"

namespace tessera {

template class HolderOf<UnaryLayer, LayerNorm::HParams>;

namespace {

const TemplateRegistrar<UnaryLayer, LayerNorm> kRegisterLayerNorm;

}  // namespace

LayerNorm::LayerNorm(const HParams& p) : UnaryLayer(p.dtypes, p.rules), p_(p) {
  const Axis axis{p.axis, p.model_dims.get(), {}};
  if (p.use_scale) scale_ = weight("scale", {axis}, p.direct_scale ? ones() : zeros());
  if (p.use_bias) bias_ = weight("bias", {axis}, zeros());
}

Tensor LayerNorm::fprop(Tensor x) const {
  const LayerScope scope(*this);
  Tensor multiplier, offset;
  if (p_.use_scale) {
    multiplier = param_like(scale_, x, DType::kF32);
    if (!p_.direct_scale) multiplier = multiplier + 1.0;
  } else {
    multiplier = constant(1.0, DType::kF32, {x.type().axis(p_.axis)});
  }
  if (p_.use_bias) offset = param_like(bias_, x, DType::kF32);
  return layer_norm(x, multiplier, offset, p_.axis, p_.epsilon);
}

}  // namespace tessera
