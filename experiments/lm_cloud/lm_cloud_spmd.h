// SPDX-License-Identifier: Apache-2.0
// Pax's LmCloudSpmd (paxml/tasks/lm/params/lm_cloud.py), which is also the base of
// experiments/optimal_scaling. It sets knobs only.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/recipes/transformer_lm_recipe.h"

namespace tessera {

struct LmCloudSpmdRecipe : TransformerLmRecipe {
  LmCloudSpmdRecipe() {
    percore_batch_size = 16;
    activation_tpl = GELU::HParams{.approximate = true};
    use_repeated_layer = true;
    optimizer = LmOptimizer::kAdam;
    decay_end = 300'000;
  }

 protected:
  // What the recipes differ in.
  struct Scale {
    int64_t layers = 0;
    int64_t dims = 0;  // model_dims.
    double percore_batch_size = 0.0;
    std::vector<int64_t> ici_mesh_shape;
  };
  void use(const Scale& scale) {
    num_layers = scale.layers;
    model_dims = scale.dims;
    percore_batch_size = scale.percore_batch_size;
    ici_mesh_shape = scale.ici_mesh_shape;
  }
};

}  // namespace tessera
