// SPDX-License-Identifier: Apache-2.0
#include "layers/embeddings/type_embedding.h"

#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {

REGISTER_TEMPLATE(TypeEmbedding, TypeEmbedding);

TypeEmbedding::TypeEmbedding(const HParams& p)
    : LayerOf(p.layer),
      table_(weight("w", {{"types", p.num_types}, {"embed", p.model_dims.get()}}, p.layer.init())) {
}

Tensor TypeEmbedding::fprop(Tensor x, Tensor types) const {
  if (types.valid())
    return x + place(gather(param(table_), place(types, "residual"), "types"), "residual");
  return x + reduce_sum(slice(param_like(table_, x), "types", 0, 1), "types");
}

}  // namespace tessera
