// SPDX-License-Identifier: Apache-2.0
// A plain multilayer perceptron: linear maps with bias, each followed by an activation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/hparams/template.h"
#include "layers/activations.h"
#include "layers/layer.h"
#include "layers/linear.h"

namespace tessera {

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

  // x["… features"] -> ["… embed"], of the last of hidden_dims.
  Tensor fprop(Tensor x) const override;

 private:
  struct Stage {
    std::unique_ptr<UnaryLayer> linear;
    std::unique_ptr<Activation> activation;
  };
  std::vector<Stage> stages_;
};

extern template class HolderOf<UnaryLayer, Mlp::HParams>;

}  // namespace tessera
