// SPDX-License-Identifier: Apache-2.0
#include "ffn.h"

#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"

namespace my_project {

using namespace tessera;

const TemplateRegistrar<UnaryLayer, Ffn> kRegister;

Ffn::Ffn(const HParams& p) : UnaryLayer(p.layer) {
  const Axis embed{"embed", p.model_dims.get(), {}};
  const Axis mlp{"mlp", p.hidden_dims.get(), {}};
  const WeightInit init = p.layer.init();
  up_ = weight("up", {embed, mlp}, init);
  scale_ = weight("scale", {mlp}, ones());
  down_ = weight("down", {mlp, embed}, init);
}

Tensor Ffn::fprop(Tensor x) const {
  x = place(x);
  Tensor hidden = place(product(x, param(up_), over("embed")));
  hidden = square(relu(save_for_backward(hidden, "ffn1")));
  hidden = hidden * param_like(scale_, hidden);
  return place(product(hidden, param(down_), over("mlp")), "residual");
}

}  // namespace my_project
