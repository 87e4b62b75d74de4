// SPDX-License-Identifier: Apache-2.0
#include "layers/experts/moe_feed_forward.h"

#include <variant>

#include "core/base/error.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/grouped_product.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/feed_forward/feed_forward.h"

namespace tessera {

REGISTER_TEMPLATE(UnaryLayer, MoeFeedForward);

MoeFeedForward::MoeFeedForward(const HParams& p) : UnaryLayer(p.layer), p_(p) {
  if (!p.use_gated_activation && (p.up_limit.has() || p.up_offset != 0.0))
    fail("up_limit and up_offset are for experts with use_gated_activation=true");
  const Axis experts{std::string(kExpertsAxis), p.num_experts.get(), {}};
  const Axis embed{"embed", p.model_dims.get(), {}};
  const Axis mlp{"mlp", p.hidden_dims.get(), {}};
  const WeightInit init = p.layer.init();
  const FanAxes in{{"embed"}, {"mlp"}}, out{{"mlp"}, {"embed"}};
  router_ = child("router", p.router_tpl);
  if (p.use_gated_activation) gate_ = weight("gate", {experts, embed, mlp}, init, in);
  up_ = weight("up", {experts, embed, mlp}, init, in);
  activation_ = child("activation", p.activation_tpl);
  down_ = weight("down", {experts, mlp, embed}, p.down_init.get_or(init), out);
  if (p.use_bias) {
    if (p.use_gated_activation) gate_bias_ = weight("gate_bias", {experts, mlp}, zeros());
    up_bias_ = weight("up_bias", {experts, mlp}, zeros());
    down_bias_ = weight("down_bias", {experts, embed}, zeros());
  }
  if (p.use_shared_gate && p.num_shared_experts == 0)
    fail("use_shared_gate needs num_shared_experts of at least 1");
  if (p.use_shared_gate) shared_gate_ = weight("shared_gate", {embed}, init, {{"embed"}, {}});
  if (p.num_shared_experts > 0)
    shared_ = child<UnaryLayer>(
        "shared", FeedForward::HParams{.model_dims = p.model_dims,
                                       .hidden_dims = p.num_shared_experts * p.hidden_dims.get(),
                                       .activation_tpl = p.activation_tpl,
                                       .use_gated_activation = p.use_gated_activation,
                                       .layer = p.layer,
                                       .down_init = p.down_init});
}

Tensor MoeFeedForward::fprop(Tensor x) const {
  x = place(x);  // All-gathers a residual that is split along its sequence.
  const Routing routing = router_(x);
  const Tensor y = std::visit([&](const auto& chosen) { return processed(x, chosen); }, routing);
  return save_for_backward(shared_ ? y + shared(x) : y, "ffn2");
}

// The output of the shared experts.
Tensor MoeFeedForward::shared(const Tensor& x) const {
  const Tensor y = shared_(x);
  if (!shared_gate_.valid()) return y;
  return y * sigmoid(place(einsum(x, param(shared_gate_), over("embed")), "residual"));
}

template <typename Product>
Tensor MoeFeedForward::hidden(const Tensor& x, const Product& product) const {
  const Tensor up = save_for_backward(product(x, up_, up_bias_), "ffn1");
  if (!gate_.valid()) return activation_(up);
  const Tensor gate = save_for_backward(product(x, gate_, gate_bias_), "ffn1");
  return activation_(gate) * adjusted_up(up);
}

Tensor MoeFeedForward::adjusted_up(Tensor up) const {
  if (p_.up_limit.has()) {
    const double limit = p_.up_limit.get();
    up = maximum(minimum(up, constant(limit, up.dtype())), constant(-limit, up.dtype()));
  }
  return p_.up_offset == 0.0 ? up : up + p_.up_offset;
}

Tensor MoeFeedForward::processed(const Tensor& x, const TokenChoices& choices) const {
  const auto product = [&](const Tensor& rows, Weight matrix, const Over& contracted) {
    return grouped_product(rows, whole_along(param(matrix), kExpertsAxis), choices.experts,
                           kExpertsAxis, contracted);
  };
  // The bias of the expert of each choice, split as `partner` is.
  const auto bias_of = [&](Weight bias, const Tensor& partner) {
    return gather(param_like(bias, partner), choices.experts, kExpertsAxis);
  };
  const Tensor activations = hidden(x, [&](const Tensor& rows, Weight matrix, Weight bias) {
    const Tensor y = place(product(rows, matrix, over("embed")));
    return bias.valid() ? y + bias_of(bias, y) : y;
  });
  // If `mlp` is split, y is a partial sum: it is reduced when a token's choices have been added up.
  const Tensor weights = as_dtype(choices.weights, x.dtype());
  const auto summed = [&](const Tensor& of_choices) {
    return place(reduce_sum(of_choices * weights, "top_k"), "residual");
  };
  const Tensor y = summed(product(activations, down_, over("mlp")));
  return down_bias_.valid() ? y + summed(bias_of(down_bias_, x)) : y;
}

Tensor MoeFeedForward::processed(const Tensor& x, const ExpertSlots& slots) const {
  // If `seq` is split, each device puts its own tokens into the slots: a partial sum, which placing
  // the slots reduces.
  const Tensor here = transpose(gather(x, slots.tokens, "seq"), "experts batch capacity embed");
  const Tensor activations =
      hidden(place(here), [&](const Tensor& rows, Weight matrix, Weight bias) {
        const Tensor y = place(product(rows, param(matrix), over("embed")));
        return bias.valid() ? y + param_like(bias, y) : y;
      });
  const Tensor y = product(activations, param(down_), over("mlp"));
  // Back to the devices of the tokens. A partial sum over a split `mlp` stays one until the slots,
  // more than there are tokens, have been added up.
  Type type = here.type();
  type.partial = y.type().partial;
  const Tensor back = transpose(reshard(y, type), "batch experts capacity embed");
  const Tensor weights = as_dtype(slots.weights, x.dtype());
  const auto summed = [&](const Tensor& of_slots) {
    return place(scatter_add(of_slots * weights, slots.tokens, x.type().axis("seq"), 1),
                 "residual");
  };
  const Tensor sum = summed(back);
  if (!down_bias_.valid()) return sum;
  return sum + summed(broadcast(param_like(down_bias_, x),
                                {back.type().axis("batch"), back.type().axis("capacity")},
                                "batch experts capacity embed"));
}

}  // namespace tessera
