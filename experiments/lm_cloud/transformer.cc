// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=lm_cloud.Transformer --smoke
// Pax's recipes with whole weights on each device (paxml/tasks/lm/params/lm_cloud.py, "Data
// parallel training").
#include "plugins/registry.h"
#include "tasks/recipes/transformer_lm_recipe.h"

namespace tessera {
namespace {

// TransformerLmPmapAdam of paxml/tasks/lm/model_params.py. Its mesh is all devices of a host; ours
// are the eight of the MLPs.
REGISTER_EXPERIMENT(lm_cloud, Transformer, TransformerLmAdamRecipe,
                    "Pax's LmCloudTransformerAdam: 0.44B weights in f32, unrolled; 8 replicas") {
  percore_batch_size = 16;
  combine_qkv = false;
  softmax_logit_cap = 0.0;
  remat_policy = "save_everything";
  ici_mesh_shape = {8, 1, 1};
  strategy = Strategy::kReplicas;
}

REGISTER_EXPERIMENT(lm_cloud, TransformerTest, Transformer,
                    "Pax's LmCloudTransformerAdamTest: lm_cloud.Transformer with 2 layers") {
  num_layers = 2;
}

REGISTER_EXPERIMENT(
    lm_cloud, TransformerLimitSteps, Transformer,
    "Pax's LmCloudTransformerAdamLimitSteps: lm_cloud.Transformer with 10 layers, 2000 steps") {
  num_layers = 10;
  num_train_steps = 2000;
}

}  // namespace
}  // namespace tessera
