// SPDX-License-Identifier: Apache-2.0
// Pax's LmCloudSpmd and LmCloudSpmdPipeline (paxml/tasks/lm/params/lm_cloud.py), which are also
// bases of experiments/optimal_scaling. They set knobs only.
#pragma once

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
};

struct LmCloudPipelineRecipe : LmCloudSpmdRecipe {
  LmCloudPipelineRecipe() { use_pipeline = true; }
};

}  // namespace tessera
