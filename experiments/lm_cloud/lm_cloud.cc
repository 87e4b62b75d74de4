// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=lm_cloud.Spmd2B --smoke
// Pax's LmCloud recipes of language models (paxml/tasks/lm/params/lm_cloud.py): LmCloudSpmd, 2 to
// 1024 billion weights; LmCloudSpmdPipeline; and those with whole weights on each device.
#include "experiments/lm_cloud/lm_cloud_spmd.h"
#include "plugins/registry.h"

namespace tessera {
namespace {

REGISTER_EXPERIMENT(lm_cloud, SpmdTest, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmdTest: 2 layers of 64, 2.18M weights; 1 device") {
  use({.layers = 2, .dims = 64, .percore_batch_size = 4, .ici_mesh_shape = {1, 1, 1}});
  dims_per_head = 8;
}

REGISTER_EXPERIMENT(lm_cloud, Spmd2B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd2B: 2.14B weights; 1×4×1 devices") {
  use({.layers = 18, .dims = 3072, .percore_batch_size = 8, .ici_mesh_shape = {1, 4, 1}});
}

REGISTER_EXPERIMENT(lm_cloud, Spmd2BLimitSteps, Spmd2B,
                    "Pax's LmCloudSpmd2BLimitSteps: lm_cloud.Spmd2B for 300 steps") {
  num_train_steps = 300;
}

REGISTER_EXPERIMENT(lm_cloud, Spmd32B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd32B: 32.5B weights; 1×16×4 devices") {
  use({.layers = 40, .dims = 8192, .percore_batch_size = 8, .ici_mesh_shape = {1, 16, 4}});
  remat_policy = "save_context_and_out_proj";
}

REGISTER_EXPERIMENT(lm_cloud, Spmd64B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd64B: 64.5B weights; 1×16×8 devices") {
  use({.layers = 51, .dims = 10240, .percore_batch_size = 4, .ici_mesh_shape = {1, 16, 8}});
  remat_policy = "save_context_and_out_proj";
}

REGISTER_EXPERIMENT(lm_cloud, Spmd128B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd128B: 129B weights; 1×64×4 devices") {
  use({.layers = 71, .dims = 12288, .percore_batch_size = 4, .ici_mesh_shape = {1, 64, 4}});
}

REGISTER_EXPERIMENT(lm_cloud, Spmd256B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd256B: 258B weights; 1×64×8 devices") {
  use({.layers = 80, .dims = 16384, .percore_batch_size = 4, .ici_mesh_shape = {1, 64, 8}});
}

REGISTER_EXPERIMENT(lm_cloud, Spmd512B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd512B: 514B weights; 1×64×16 devices") {
  use({.layers = 102, .dims = 20480, .percore_batch_size = 4, .ici_mesh_shape = {1, 64, 16}});
}

REGISTER_EXPERIMENT(lm_cloud, Spmd1024B, LmCloudSpmdRecipe,
                    "Pax's LmCloudSpmd1024B: 1030B weights; 1×256×8 devices") {
  use({.layers = 142, .dims = 24576, .percore_batch_size = 2, .ici_mesh_shape = {1, 256, 8}});
}

// Replicas over the slow links.
REGISTER_EXPERIMENT(lm_cloud, SpmdMultislice2B, Spmd2B,
                    "Pax's LmCloudSpmdMultislice2B: 2.14B weights; 2 slices of 1×4×1 devices") {
  percore_batch_size = 16;
  dcn_mesh_shape = {2, 1, 1};
}

struct LmCloudPipelineRecipe : LmCloudSpmdRecipe {
  LmCloudPipelineRecipe() { use_pipeline = true; }
};

REGISTER_EXPERIMENT(
    lm_cloud, SpmdPipeline9B, LmCloudPipelineRecipe,
    "Pax's LmCloudSpmdPipeline9B: 9.8B weights in 16 stages, in f32; 16×4×1×1 devices") {
  use({.layers = 48, .dims = 4096, .percore_batch_size = 8, .ici_mesh_shape = {16, 4, 1, 1}});
  microbatch_size = 4;
  compute_dtype = DType::kF32;
}

// Eight hosts of 16 A100: a stage is a host.
REGISTER_EXPERIMENT(
    lm_cloud, SpmdPipeline175B, LmCloudPipelineRecipe,
    "Pax's LmCloudSpmdPipeline175B: 174B weights; 8 hosts, each a stage of 16 devices") {
  use({.layers = 96, .dims = 12288, .percore_batch_size = 0.75, .ici_mesh_shape = {1, 1, 1, 16}});
  microbatch_size = 2;
  seq_len = 2048;
  dcn_mesh_shape = {8, 1, 1, 1};
}

// Stages are connected by the slow links.
REGISTER_EXPERIMENT(
    lm_cloud, SpmdPipelineMultislice2B, LmCloudPipelineRecipe,
    "Pax's LmCloudSpmdPipelineMultislice2B: 2.14B weights; 2 slices, each a stage of 4 replicas") {
  use({.layers = 18, .dims = 3072, .percore_batch_size = 16, .ici_mesh_shape = {1, 4, 1, 1}});
  microbatch_size = 4;
  dcn_mesh_shape = {2, 1, 1, 1};
}

REGISTER_EXPERIMENT(
    lm_cloud, SpmdPipelineMultislice2BCircular, SpmdPipelineMultislice2B,
    "Pax's LmCloudSpmdPipelineMultislice2BCircular: the same with 3 chunks of layers per stage") {
  microbatch_size = 8;
  circular_repeat = 3;
}

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
