// SPDX-License-Identifier: Apache-2.0
// One table that embeds ids and scores the vocabulary ("tied"; Press and Wolf, 2017).
#pragma once

#include "core/hparams/template.h"
#include "layers/base_softmax.h"

namespace tessera {

class SharedEmbeddingSoftmax final : public BaseSoftmax {
 public:
  struct HParams {
    using Instance = SharedEmbeddingSoftmax;
    static constexpr std::string_view kName = "SharedEmbeddingSoftmax";
    Required<int64_t> vocab_size;
    Required<int64_t> model_dims;
    bool scale_sqrt_depth = false;  // Multiply looked-up rows by √model_dims; not the logits.
    bool use_bias = false;          // On the logits. On in Pax unless said otherwise.
    SoftmaxOptions loss;
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    LayerRules rules;  // Of its own tensors.
    FIELDS(vocab_size, model_dims, scale_sqrt_depth, use_bias, loss, dtypes, params_init, rules)
  };
  explicit SharedEmbeddingSoftmax(const HParams& p);

  bool shares_embedding() const override { return true; }
  Tensor embed_ids(Tensor ids) const override;

 private:
  Projection projection() const override;

  HParams p_;
  Weight w_, bias_;
};

extern template class HolderOf<BaseSoftmax, SharedEmbeddingSoftmax::HParams>;

}  // namespace tessera
