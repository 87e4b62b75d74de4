// SPDX-License-Identifier: Apache-2.0
#include "layers/feed_forward.h"

#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"

namespace tessera {

template class HolderOf<UnaryLayer, FeedForward::HParams>;

namespace {

const TemplateRegistrar<UnaryLayer, FeedForward> kRegisterFeedForward;

}  // namespace

FeedForward::FeedForward(const HParams& p) : UnaryLayer(p.dtypes, p.rules) {
  const Axis embed{"embed", p.model_dims.get(), {}};
  const Axis mlp{"mlp", p.hidden_dims.get(), {}};
  const WeightInit init = p.params_init.get_or(WeightInit{});
  if (p.use_gated_activation) {
    gate_ = weight("gate", {embed, mlp}, init);
    if (p.use_bias) gate_bias_ = weight("gate_bias", {mlp}, zeros());
  }
  up_ = weight("up", {embed, mlp}, init);
  if (p.use_bias) up_bias_ = weight("up_bias", {mlp}, zeros());
  activation_ = child("activation", p.activation_tpl);
  dropout_ = child("dropout", Template<UnaryLayer>(Dropout::HParams{.rate = p.dropout_rate}));
  down_ = weight("down", {mlp, embed}, p.down_init.get_or(init));
  if (p.use_bias) down_bias_ = weight("down_bias", {embed}, zeros());
}

Tensor FeedForward::project(Tensor x, Weight matrix, Weight bias) const {
  const Tensor y = place(einsum(x, param(matrix), over("embed")));
  return save_for_backward(bias.valid() ? y + param_like(bias, y) : y, "ffn1");
}

Tensor FeedForward::fprop(Tensor x) const {
  const LayerScope scope(*this);
  x = place(x);  // Gathers a residual that is split along its sequence.
  Tensor hidden = project(x, up_, up_bias_);
  if (gate_.valid()) {
    hidden = activation_->fprop(project(x, gate_, gate_bias_)) * hidden;
  } else {
    hidden = activation_->fprop(hidden);
  }
  hidden = dropout_->fprop(hidden);
  // A sum over a split mlp is still partial here: placing it reduces.
  const Tensor y = place(einsum(hidden, param(down_), over("mlp")), "residual");
  return save_for_backward(down_bias_.valid() ? y + param_like(down_bias_, y) : y, "ffn2");
}

}  // namespace tessera
