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
    tessera::LayerHParams layer;  // dtypes, params_init, rules
    FIELDS(model_dims, hidden_dims, layer)
  };
  explicit Ffn(const HParams& p);

 private:
  // x["… embed"] -> ["… embed"], laid out as the residual.
  tessera::Tensor fprop(tessera::Tensor x) const override;

  tessera::Weight up_, scale_, down_;
};

}  // namespace my_project
