// SPDX-License-Identifier: Apache-2.0
// A matrix product over one axis, and an optional bias.
#pragma once

#include <string>

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

class Linear final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Linear;
    static constexpr std::string_view kName = "Linear";
    Required<int64_t> input_dims;
    Required<int64_t> output_dims;
    std::string input_axis = "embed";
    std::string output_axis = "mlp";  // Must differ from input_axis.
    bool use_bias = false;
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    LayerRules rules;  // Of its own tensors.
    FIELDS(input_dims, output_dims, input_axis, output_axis, use_bias, dtypes, params_init, rules)
  };
  explicit Linear(const HParams& p);

  // x["… input_axis"] -> ["… output_axis"].
  Tensor fprop(Tensor x) const override;

 private:
  HParams p_;
  Weight w_, bias_;
};

extern template class HolderOf<UnaryLayer, Linear::HParams>;

}  // namespace tessera
