// SPDX-License-Identifier: Apache-2.0
#include "layers/feed_forward/head_transform.h"

#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"

namespace tessera {

REGISTER_TEMPLATE(UnaryLayer, HeadTransform);

HeadTransform::HeadTransform(const HParams& p) : UnaryLayer(p.layer) {
  const Axis mlp{"mlp", p.model_dims.get(), {}};
  w_ = weight("w", {{"embed", p.model_dims.get()}, mlp}, p.layer.init(), {{"embed"}, {mlp.name}});
  if (p.use_bias) bias_ = weight("b", {mlp}, zeros());
  activation_ = child("activation", p.activation_tpl);
  norm_ = child("norm", p.norm_tpl);
}

Tensor HeadTransform::fprop(Tensor x) const {
  x = place(x);  // All-gathers a residual that is split along its sequence.
  Tensor y = place(product(x, param(w_), over("embed")));
  if (bias_.valid()) y = y + param_like(bias_, y);
  return norm_(place(rename(activation_(y), "mlp", "embed"), "residual"));
}

}  // namespace tessera
