// SPDX-License-Identifier: Apache-2.0
// Adds a learned vector along one axis.
#pragma once

#include <string>

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

class Bias final : public UnaryLayer {
 public:
  struct HParams {
    using Instance = Bias;
    static constexpr std::string_view kName = "Bias";
    Required<int64_t> dims;
    std::string axis = "embed";
    Field<DTypePolicy> dtypes;
    LayerRules rules;  // Of its own tensors.
    FIELDS(dims, axis, dtypes, rules)
  };
  explicit Bias(const HParams& p);
  Tensor fprop(Tensor x) const override;

 private:
  Weight b_;
};

extern template class HolderOf<UnaryLayer, Bias::HParams>;

}  // namespace tessera
