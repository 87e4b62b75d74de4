// SPDX-License-Identifier: Apache-2.0
// Looks ids up in a learned table. Tied to the softmax, use SharedEmbeddingSoftmax instead.
#pragma once

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

class Embedding final : public Layer {
 public:
  struct HParams {
    using Instance = Embedding;
    static constexpr std::string_view kName = "Embedding";
    Required<int64_t> vocab_size;
    Required<int64_t> model_dims;
    bool scale_sqrt_depth = false;  // Multiply looked-up rows by √model_dims.
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    LayerRules rules;  // Of its own tensors.
    FIELDS(vocab_size, model_dims, scale_sqrt_depth, dtypes, params_init, rules)
  };
  explicit Embedding(const HParams& p);

  // ids i32["batch seq"] -> ["batch seq embed"].
  Tensor fprop(Tensor ids) const;

 private:
  HParams p_;
  Weight table_;
};

extern template class HolderOf<Embedding, Embedding::HParams>;

}  // namespace tessera
