// SPDX-License-Identifier: Apache-2.0
// FeedForward: the transformer's two-layer MLP, gated (Shazeer, 2020, "GLU variants") or not; norm
// and residual belong to the block around it. Mlp: a plain multilayer perceptron.
#pragma once

#include <string>
#include <vector>

#include "core/hparams/template.h"
#include "layers/feed_forward/activations.h"
#include "layers/feed_forward/linear.h"
#include "layers/layer.h"

namespace tessera {

// x["… embed"] -> ["… embed"], laid out as the residual.
class FeedForward final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = FeedForward;
    static constexpr std::string_view kName = "FeedForward";
    Required<int64_t> model_dims;
    Required<int64_t> hidden_dims;
    Template<Activation> activation_tpl = ReLU::HParams{};
    bool use_gated_activation = false;  // activation(x·gate) ⊙ (x·up): SwiGLU with SiLU.
    bool use_bias = false;
    double dropout_rate = 0.0;  // Of the hidden activations. Pax: relu_dropout.
    LayerHParams layer;
    Field<WeightInit> down_init;  // Of the second matrix; params_init unless set.
    FIELDS(model_dims, hidden_dims, activation_tpl, use_gated_activation, use_bias, dropout_rate,
           layer, down_init)
  };
  explicit FeedForward(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;
  Tensor project(Tensor x, Weight matrix, Weight bias) const;

  ChildLayer<Activation> activation_;
  ChildLayer<UnaryLayer> dropout_;
  Weight up_, up_bias_, gate_, gate_bias_, down_, down_bias_;
};

// x["… features"] -> ["… embed"], of size hidden_dims.back(): linear maps with bias, each followed
// by an activation.
class Mlp final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Mlp;
    static constexpr std::string_view kName = "Mlp";
    Required<int64_t> input_dims;
    std::vector<int64_t> hidden_dims;  // One a layer; at least one.
    std::string input_axis = "features";
    Template<Activation> activation_tpl = ReLU::HParams{};
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    FIELDS(input_dims, hidden_dims, input_axis, activation_tpl, dtypes, params_init)
  };
  explicit Mlp(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  struct Stage {
    ChildLayer<UnaryLayer> linear;
    ChildLayer<Activation> activation;
  };
  std::vector<Stage> stages_;
};

extern template class HolderOf<UnaryLayer, FeedForward::HParams>;
extern template class HolderOf<UnaryLayer, Mlp::HParams>;

}  // namespace tessera
