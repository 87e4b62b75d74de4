// SPDX-License-Identifier: Apache-2.0
#include "layers/norms/norms.h"

#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"

namespace tessera {

REGISTER_TEMPLATE(UnaryLayer, LayerNorm);
REGISTER_TEMPLATE(UnaryLayer, RmsNorm);
REGISTER_TEMPLATE(UnaryLayer, HeadsRmsNorm);

LayerNorm::LayerNorm(const HParams& p) : UnaryLayer(p.layer), p_(p) {
  const Axis axis{p.axis, p.model_dims.get(), {}};
  if (p.use_scale) scale_ = weight("scale", {axis}, p.direct_scale ? ones() : zeros());
  if (p.use_bias) bias_ = weight("bias", {axis}, zeros());
}

Tensor LayerNorm::fprop(Tensor x) const {
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

RmsNorm::RmsNorm(const HParams& p) : UnaryLayer(p.layer), p_(p) {
  if (p.use_scale)
    scale_ = weight("scale", {{p.axis, p.model_dims.get()}}, p.direct_scale ? ones() : zeros());
}

Tensor RmsNorm::fprop(Tensor x) const {
  Tensor multiplier;
  if (p_.use_scale) {
    multiplier = param_like(scale_, x, DType::kF32);
    if (!p_.direct_scale) multiplier = multiplier + 1.0;
  }
  return rms_norm(x, multiplier, p_.axis, p_.epsilon);
}

HeadsRmsNorm::HeadsRmsNorm(const HParams& p)
    : UnaryLayer(p.layer),
      p_(p),
      scale_(weight("scale",
                    {{p.axis, p.num_heads.get(), {}}, {"head_dim", p.dims_per_head.get(), {}}},
                    ones())) {}

Tensor HeadsRmsNorm::fprop(Tensor x) const {
  constexpr std::string_view kMerged = "heads_dims";
  const auto merged = [&](const Tensor& heads) {
    return merge_axes(heads, p_.axis, "head_dim", kMerged);
  };
  const Tensor scale = merged(param_like(scale_, x, DType::kF32));
  const Tensor y = rms_norm(merged(x), scale, kMerged, p_.epsilon);
  return split_axis(y, kMerged, x.type().axis(p_.axis), x.type().axis("head_dim"));
}

}  // namespace tessera
