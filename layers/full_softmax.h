// SPDX-License-Identifier: Apache-2.0
// A softmax with a matrix of its own ("untied").
#pragma once

#include "core/hparams/template.h"
#include "layers/base_softmax.h"

namespace tessera {

class FullSoftmax final : public BaseSoftmax {
 public:
  struct HParams {
    using Instance = FullSoftmax;
    static constexpr std::string_view kName = "FullSoftmax";
    Required<int64_t> vocab_size;
    Required<int64_t> model_dims;
    bool use_bias = false;
    SoftmaxOptions loss;
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    LayerRules rules;  // Of its own tensors.
    FIELDS(vocab_size, model_dims, use_bias, loss, dtypes, params_init, rules)
  };
  explicit FullSoftmax(const HParams& p);

 private:
  Projection projection() const override;

  Weight w_, bias_;
};

extern template class HolderOf<BaseSoftmax, FullSoftmax::HParams>;

}  // namespace tessera
