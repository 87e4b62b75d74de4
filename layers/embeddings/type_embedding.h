// SPDX-License-Identifier: Apache-2.0
// TypeEmbedding: a vector for the kind of each token, such as the first or the second text of a
// pair (BERT; Devlin et al., 2019).
#pragma once

#include "core/hparams/template.h"
#include "layers/layer.h"

namespace tessera {

// x["batch seq embed"] plus the row of each token's type, i32["batch seq"]; invalid: all of type 0.
class TypeEmbedding final : public LayerOf<Tensor(Tensor x, Tensor types)> {
 public:
  struct HParams {
    using Instance = TypeEmbedding;
    int64_t num_types = 2;
    Required<int64_t> model_dims;
    LayerHParams layer;
    FIELDS(About(num_types, kSize), About(model_dims, kSize), layer)
  };
  explicit TypeEmbedding(const HParams& p);

 private:
  Tensor fprop(Tensor x, Tensor types) const override;

  Weight table_;
};

extern template class HolderOf<TypeEmbedding, TypeEmbedding::HParams>;

}  // namespace tessera
