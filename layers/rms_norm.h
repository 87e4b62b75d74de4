// SPDX-License-Identifier: Apache-2.0
// RMSNorm with a learned scale (Zhang and Sennrich, 2019).
#pragma once

#include <string>

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

class RmsNorm final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = RmsNorm;
    static constexpr std::string_view kName = "RmsNorm";
    Required<int64_t> model_dims;  // Size of `axis`; the enclosing layer's unless set.
    std::string axis = "embed";
    double epsilon = 1e-6;
    bool use_scale = true;
    bool direct_scale = true;  // false: stored as scale - 1, from 0 (Pax).
    Field<DTypePolicy> dtypes;
    LayerRules rules;  // Of its own tensors.
    FIELDS(model_dims, axis, epsilon, use_scale, direct_scale, dtypes, rules)
  };
  explicit RmsNorm(const HParams& p);
  Tensor fprop(Tensor x) const override;

 private:
  HParams p_;
  Weight scale_;
};

extern template class HolderOf<UnaryLayer, RmsNorm::HParams>;

}  // namespace tessera
