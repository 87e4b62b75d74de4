// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=lm_cloud.Spmd2B --smoke
// Pax's LmCloudSpmd recipes, 2 to 1024 billion weights (paxml/tasks/lm/params/lm_cloud.py).
#include "experiments/lm_cloud/lm_cloud_spmd.h"
#include "plugins/registry.h"

namespace tessera {
namespace {

REGISTER_EXPERIMENT(lm_cloud, SpmdTest, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmdTest: 2 layers of 64, 2.18M weights; 1 device") {
  percore_batch_size = 4;
  num_layers = 2;
  model_dims = 64;
  dims_per_head = 8;
  ici_mesh_shape = {1, 1, 1};
}

REGISTER_EXPERIMENT(lm_cloud, Spmd2B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd2B: 2.14B weights; 1×4×1 devices") {
  percore_batch_size = 8;
  num_layers = 18;
  model_dims = 3072;
  ici_mesh_shape = {1, 4, 1};
}

REGISTER_EXPERIMENT(lm_cloud, Spmd2BLimitSteps, Spmd2B,
                    "Pax's LmCloudSpmd2BLimitSteps: lm_cloud.Spmd2B for 300 steps") {
  num_train_steps = 300;
}

REGISTER_EXPERIMENT(lm_cloud, Spmd32B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd32B: 32.5B weights; 1×16×4 devices") {
  percore_batch_size = 8;
  num_layers = 40;
  model_dims = 8192;
  remat_policy = "save_context_and_out_proj";
  ici_mesh_shape = {1, 16, 4};
}

REGISTER_EXPERIMENT(lm_cloud, Spmd64B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd64B: 64.5B weights; 1×16×8 devices") {
  percore_batch_size = 4;
  num_layers = 51;
  model_dims = 10240;
  remat_policy = "save_context_and_out_proj";
  ici_mesh_shape = {1, 16, 8};
}

REGISTER_EXPERIMENT(lm_cloud, Spmd128B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd128B: 129B weights; 1×64×4 devices") {
  percore_batch_size = 4;
  num_layers = 71;
  model_dims = 12288;
  ici_mesh_shape = {1, 64, 4};
}

REGISTER_EXPERIMENT(lm_cloud, Spmd256B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd256B: 258B weights; 1×64×8 devices") {
  percore_batch_size = 4;
  num_layers = 80;
  model_dims = 16384;
  ici_mesh_shape = {1, 64, 8};
}

REGISTER_EXPERIMENT(lm_cloud, Spmd512B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd512B: 514B weights; 1×64×16 devices") {
  percore_batch_size = 4;
  num_layers = 102;
  model_dims = 20480;
  ici_mesh_shape = {1, 64, 16};
}

REGISTER_EXPERIMENT(lm_cloud, Spmd1024B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd1024B: 1030B weights; 1×256×8 devices") {
  percore_batch_size = 2;
  num_layers = 142;
  model_dims = 24576;
  ici_mesh_shape = {1, 256, 8};
}

// Replicas over the slow links.
REGISTER_EXPERIMENT(lm_cloud, SpmdMultislice2B, Spmd2B,
                    "Pax's LmCloudSpmdMultislice2B: 2.14B weights; 2 slices of 1×4×1 devices") {
  percore_batch_size = 16;
  dcn_mesh_shape = {2, 1, 1};
}

}  // namespace
}  // namespace tessera
