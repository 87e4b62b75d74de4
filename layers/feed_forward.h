// SPDX-License-Identifier: Apache-2.0
// The transformer's two-layer MLP, gated (Shazeer, 2020) or not. Norm and residual belong to the
// block around it.
#pragma once

#include <memory>

#include "core/hparams/template.h"
#include "layers/activations.h"
#include "layers/dropout.h"
#include "layers/layer.h"

namespace tessera {

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
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    Field<WeightInit> down_init;  // Of the second matrix; params_init unless set.
    LayerRules rules;             // Of its own tensors.
    FIELDS(model_dims, hidden_dims, activation_tpl, use_gated_activation, use_bias, dropout_rate,
           dtypes, params_init, down_init, rules)
  };
  explicit FeedForward(const HParams& p);

  // x["… embed"] -> ["… embed"], laid out as the residual.
  Tensor fprop(Tensor x) const override;

 private:
  Tensor project(Tensor x, Weight matrix, Weight bias) const;

  std::unique_ptr<Activation> activation_;
  std::unique_ptr<UnaryLayer> dropout_;
  Weight up_, up_bias_, gate_, gate_bias_, down_, down_bias_;
};

extern template class HolderOf<UnaryLayer, FeedForward::HParams>;

}  // namespace tessera
