// SPDX-License-Identifier: Apache-2.0
// Linear: a matrix product over one axis, with an optional bias. Bias: a learned vector added along
// one axis.
#pragma once

#include <string>

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

// x["… input_axis"] -> ["… output_axis"].
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
    LayerHParams layer;
    FIELDS(input_dims, output_dims, input_axis, output_axis, use_bias, layer)
  };
  explicit Linear(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  HParams p_;
  Weight w_, bias_;
};

class Bias final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Bias;
    static constexpr std::string_view kName = "Bias";
    Required<int64_t> dims;
    std::string axis = "embed";
    Field<DTypePolicy> dtypes;
    LayerRules rules;  // Axis rules for the layer's own tensors.
    FIELDS(dims, axis, dtypes, rules)
  };
  explicit Bias(const HParams& p);

 private:
  Tensor fprop(Tensor x) const override;

  Weight b_;
};

extern template class HolderOf<UnaryLayer, Linear::HParams>;
extern template class HolderOf<UnaryLayer, Bias::HParams>;

}  // namespace tessera
