// SPDX-License-Identifier: Apache-2.0
#include "layers/feed_forward/feed_forward.h"

#include "core/base/error.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reshard.h"
#include "layers/dropout.h"

namespace tessera {

REGISTER_TEMPLATE(UnaryLayer, Linear);
REGISTER_TEMPLATE(UnaryLayer, Bias);
REGISTER_TEMPLATE(UnaryLayer, FeedForward);
REGISTER_TEMPLATE(UnaryLayer, Mlp);
REGISTER_TEMPLATE(UnaryLayer, HeadTransform);

Linear::Linear(const HParams& p) : UnaryLayer(p.layer), p_(p) {
  if (p.input_axis == p.output_axis)
    fail(
        "Linear: input_axis and output_axis are both '{}'; name the output differently and "
        "rename it afterwards",
        p.input_axis);
  w_ = weight("w", {{p.input_axis, p.input_dims.get()}, {p.output_axis, p.output_dims.get()}},
              p.layer.init(), {{p.input_axis}, {p.output_axis}});
  if (p.use_bias) bias_ = weight("b", {{p.output_axis, p.output_dims.get()}}, zeros());
}

Tensor Linear::fprop(Tensor x) const {
  Tensor y = place(product(x, param(w_), over(p_.input_axis)));
  return bias_.valid() ? y + param_like(bias_, y) : y;
}

Bias::Bias(const HParams& p)
    : UnaryLayer(p.layer), b_(weight("b", {{p.axis, p.dims.get()}}, zeros())) {}

Tensor Bias::fprop(Tensor x) const { return x + param_like(b_, x); }

FeedForward::FeedForward(const HParams& p) : UnaryLayer(p.layer) {
  const Axis embed{"embed", p.model_dims.get(), {}};
  const Axis mlp{"mlp", p.hidden_dims.get(), {}};
  const WeightInit init = p.layer.init();
  const FanAxes in{{"embed"}, {"mlp"}}, out{{"mlp"}, {"embed"}};
  if (p.use_gated_activation) {
    gate_ = weight("gate", {embed, mlp}, init, in);
    if (p.use_bias) gate_bias_ = weight("gate_bias", {mlp}, zeros());
  }
  up_ = weight("up", {embed, mlp}, init, in);
  if (p.use_bias) up_bias_ = weight("up_bias", {mlp}, zeros());
  activation_ = child("activation", p.activation_tpl);
  dropout_ = child<UnaryLayer>("dropout", Dropout::HParams{.rate = p.dropout_rate});
  down_ = weight("down", {mlp, embed}, p.down_init.get_or(init), out);
  if (p.use_bias) down_bias_ = weight("down_bias", {embed}, zeros());
}

Tensor FeedForward::project(Tensor x, Weight matrix, Weight bias) const {
  const Tensor y = place(product(x, param(matrix), over("embed")));
  return save_for_backward(bias.valid() ? y + param_like(bias, y) : y, "ffn1");
}

Tensor FeedForward::fprop(Tensor x) const {
  x = place(x);  // All-gathers a residual that is split along its sequence.
  Tensor hidden = project(x, up_, up_bias_);
  if (gate_.valid()) {
    hidden = activation_(project(x, gate_, gate_bias_)) * hidden;
  } else {
    hidden = activation_(hidden);
  }
  hidden = dropout_(hidden);
  // If `mlp` is split, the product is a partial sum: placing it reduces.
  const Tensor y = place(product(hidden, param(down_), over("mlp")), "residual");
  return save_for_backward(down_bias_.valid() ? y + param_like(down_bias_, y) : y, "ffn2");
}

Mlp::Mlp(const HParams& p) {
  if (p.hidden_dims.empty()) fail("Mlp: hidden_dims is empty, expected one size for each layer");
  Linear::HParams linear{
      .input_dims = p.input_dims, .input_axis = p.input_axis, .use_bias = true, .layer = p.layer};
  for (size_t i = 0; i < p.hidden_dims.size(); ++i) {
    linear.output_dims = p.hidden_dims[i];
    stages_.push_back({child<UnaryLayer>(fmt::format("linears[{}]", i), linear),
                       child(fmt::format("activations[{}]", i), p.activation_tpl)});
    linear.input_dims = p.hidden_dims[i];
    linear.input_axis = "embed";
  }
}

Tensor Mlp::fprop(Tensor x) const {
  for (const Stage& stage : stages_) x = rename(stage.activation(stage.linear(x)), "mlp", "embed");
  return x;
}

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
