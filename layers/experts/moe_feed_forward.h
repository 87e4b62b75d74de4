// SPDX-License-Identifier: Apache-2.0
// MoeFeedForward: a mixture of experts in place of a feed-forward layer. A router chooses the
// experts of each token; the result is the sum of their outputs, weighted by the router, and of the
// outputs of shared experts, which process every token (DeepSeekMoE, Dai et al., 2024).
//
// With a rule `experts -> data` for weights and activations, experts are spread over the devices of
// `data` (expert parallelism). With a capacity, slots are sent to the devices of their experts and
// back, by an all-to-all each (GShard, Lepikhin et al., 2020). Without one, the number of tokens of
// an expert is unknown before a step; then the weights of the experts are gathered before use, as
// those of other layers are under FSDP.
#pragma once

#include <cstdint>

#include "core/hparams/template.h"
#include "layers/experts/routers.h"
#include "layers/feed_forward/activations.h"
#include "layers/layer.h"

namespace tessera {

// x["batch seq embed"] -> ["batch seq embed"], laid out as the residual.
class MoeFeedForward final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = MoeFeedForward;
    Required<int64_t> model_dims;
    Required<int64_t> hidden_dims;  // Width of each expert.
    Required<int64_t> num_experts;
    Template<BaseRouter> router_tpl = TopKRouter::HParams{};
    Template<Activation> activation_tpl = ReLU::HParams{};
    bool use_gated_activation = false;  // activation(x·gate) ⊙ (x·up): SwiGLU with SiLU.
    bool use_bias = false;              // Adds biases to all products of the experts.
    // With a gate, x·up is clipped to ±up_limit, if set, and up_offset is added (gpt-oss).
    Field<double> up_limit;
    double up_offset = 0.0;
    int64_t num_shared_experts = 0;  // One FeedForward of this many times hidden_dims.
    bool use_shared_gate = false;    // Multiplies its output by σ(x·gate) (Qwen2-MoE).
    LayerHParams layer;
    Field<WeightInit> down_init;  // For the second matrix; params_init unless set.
    FIELDS(About(model_dims, kSize), About(hidden_dims, kSize), About(num_experts, kSize),
           router_tpl, activation_tpl, use_gated_activation, use_bias, About(up_limit, kPositive),
           up_offset, About(num_shared_experts, kNotNegative), use_shared_gate, layer, down_init)
  };
  explicit MoeFeedForward(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;
  Tensor processed(const Tensor& x, const TokenChoices& choices) const;
  Tensor processed(const Tensor& x, const ExpertSlots& slots) const;
  // Returns the hidden activations of rows x["… embed"], where product(x, matrix, bias) multiplies
  // each row by the matrix of its expert and adds the bias, if there is one.
  template <typename Product>
  Tensor hidden(const Tensor& x, const Product& product) const;
  Tensor adjusted_up(Tensor up) const;
  Tensor shared(const Tensor& x) const;

  HParams p_;
  ChildLayer<BaseRouter> router_;
  ChildLayer<Activation> activation_;
  ChildLayer<UnaryLayer> shared_;
  Weight up_, gate_, down_, shared_gate_;
  Weight up_bias_, gate_bias_, down_bias_;
};

extern template class HolderOf<UnaryLayer, MoeFeedForward::HParams>;

}  // namespace tessera
