// SPDX-License-Identifier: Apache-2.0
// A feed-forward layer: (scale ⊙ relu(x·up)²)·down, with a learned scale for each hidden unit.
#pragma once

#include "layers/layer.h"

namespace my_project {

class Ffn final : public tessera::UnaryLayer {
 public:
  struct HParams {
    using Instance = Ffn;
    static constexpr std::string_view kName = "my_project.Ffn";
    tessera::Required<int64_t> model_dims;
    tessera::Required<int64_t> hidden_dims;
    tessera::Field<tessera::DTypePolicy> dtypes;
    tessera::Field<tessera::WeightInit> params_init;
    tessera::LayerRules rules;
    FIELDS(model_dims, hidden_dims, dtypes, params_init, rules)
  };
  explicit Ffn(const HParams& p);

  // x["… embed"] -> ["… embed"], laid out as the residual.
  tessera::Tensor fprop(tessera::Tensor x) const override;

 private:
  tessera::Weight up_, scale_, down_;
};

}  // namespace my_project
