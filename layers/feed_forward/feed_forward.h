// SPDX-License-Identifier: Apache-2.0
// Layers made of matrix products. Linear: a product over one axis, with an optional bias. Bias: a
// learned vector added along one axis. FeedForward: the transformer's two-layer MLP, gated
// (Shazeer, 2020, "GLU variants") or not; norm and residual belong to the block around it. Mlp: a
// plain multilayer perceptron.
#pragma once

#include <string>
#include <vector>

#include "core/hparams/template.h"
#include "layers/feed_forward/activations.h"
#include "layers/layer.h"
#include "layers/norms/norms.h"

namespace tessera {

// x["… input_axis"] -> ["… output_axis"].
class Linear final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Linear;
    Required<int64_t> input_dims;
    Required<int64_t> output_dims;
    std::string input_axis = "embed";
    std::string output_axis = "mlp";  // Must differ from input_axis.
    bool use_bias = false;
    LayerHParams layer;
    FIELDS(About(input_dims, kSize), About(output_dims, kSize), input_axis, output_axis, use_bias,
           layer)
  };
  explicit Linear(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  HParams p_;
  Weight w_, bias_;
};

// A vector of size `dims`, initially zero, added to x along `axis`.
class Bias final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Bias;
    Required<int64_t> dims;
    std::string axis = "embed";
    FixedInitLayerHParams layer;
    FIELDS(About(dims, kSize), axis, layer)
  };
  explicit Bias(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  Weight b_;
};

// x["… embed"] -> ["… embed"], laid out as the residual.
class FeedForward final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = FeedForward;
    Required<int64_t> model_dims;
    Required<int64_t> hidden_dims;
    Template<Activation> activation_tpl = ReLU::HParams{};
    bool use_gated_activation = false;  // activation(x·gate) ⊙ (x·up): SwiGLU with SiLU.
    bool use_bias = false;
    double dropout_rate = 0.0;  // For the hidden activations. Pax: relu_dropout.
    LayerHParams layer;
    Field<WeightInit> down_init;  // For the second matrix; params_init unless set.
    FIELDS(About(model_dims, kSize), About(hidden_dims, kSize), activation_tpl,
           use_gated_activation, use_bias, About(dropout_rate, kRate), layer, down_init)
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
    Required<int64_t> input_dims;
    std::vector<int64_t> hidden_dims;  // One for each layer; at least one.
    std::string input_axis = "features";
    Template<Activation> activation_tpl = ReLU::HParams{};
    LayerHParams layer;  // For each linear map.
    FIELDS(About(input_dims, kSize), About(hidden_dims, kSize), input_axis, activation_tpl, layer)
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

// A linear map, an activation and a norm between the last block and the softmax, as in masked
// language models (BERT; Devlin et al., 2019): x["… embed"] -> ["… embed"], laid out as the
// residual. The outputs of the linear map are on the axis mlp, and split like it.
class HeadTransform final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = HeadTransform;
    Required<int64_t> model_dims;
    Template<Activation> activation_tpl = GELU::HParams{.approximate = false};
    Template<UnaryLayer> norm_tpl = LayerNorm::HParams{};
    bool use_bias = true;
    LayerHParams layer;
    FIELDS(About(model_dims, kSize), activation_tpl, norm_tpl, use_bias, layer)
  };
  explicit HeadTransform(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  Weight w_, bias_;
  ChildLayer<Activation> activation_;
  ChildLayer<UnaryLayer> norm_;
};

extern template class HolderOf<UnaryLayer, Linear::HParams>;
extern template class HolderOf<UnaryLayer, Bias::HParams>;
extern template class HolderOf<UnaryLayer, FeedForward::HParams>;
extern template class HolderOf<UnaryLayer, Mlp::HParams>;
extern template class HolderOf<UnaryLayer, HeadTransform::HParams>;

}  // namespace tessera
