// SPDX-License-Identifier: Apache-2.0
// LayerNorm with a learned scale and bias (Ba et al., 2016).
#pragma once

#include <string>

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

class LayerNorm final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = LayerNorm;
    static constexpr std::string_view kName = "LayerNorm";
    Required<int64_t> model_dims;  // Size of `axis`; the enclosing layer's unless set.
    std::string axis = "embed";
    double epsilon = 1e-6;
    bool use_scale = true;
    bool use_bias = true;
    bool direct_scale = true;  // false: stored as scale - 1, from 0 (Pax's default).
    Field<DTypePolicy> dtypes;
    LayerRules rules;  // Of its own tensors.
    FIELDS(model_dims, axis, epsilon, use_scale, use_bias, direct_scale, dtypes, rules)
  };
  explicit LayerNorm(const HParams& p);
  Tensor fprop(Tensor x) const override;

 private:
  HParams p_;
  Weight scale_, bias_;
};

extern template class HolderOf<UnaryLayer, LayerNorm::HParams>;

}  // namespace tessera
