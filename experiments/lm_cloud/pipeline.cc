// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=lm_cloud.SpmdPipeline9B --smoke
// Pax's LmCloudSpmdPipeline recipes (paxml/tasks/lm/params/lm_cloud.py).
#include "experiments/lm_cloud/lm_cloud_spmd.h"
#include "plugins/registry.h"

namespace tessera {
namespace {

REGISTER_EXPERIMENT(
    lm_cloud, SpmdPipeline9B, LmCloudPipelineRecipe,
    "Pax's LmCloudSpmdPipeline9B: 9.8B weights in 16 stages, in f32; 16×4×1×1 devices") {
  microbatch_size = 4;
  percore_batch_size = 8;
  num_layers = 48;
  model_dims = 4096;
  compute_dtype = DType::kF32;
  ici_mesh_shape = {16, 4, 1, 1};
}

// Eight hosts of 16 A100: a stage is a host.
REGISTER_EXPERIMENT(
    lm_cloud, SpmdPipeline175B, LmCloudPipelineRecipe,
    "Pax's LmCloudSpmdPipeline175B: 174B weights; 8 hosts, each a stage of 16 devices") {
  microbatch_size = 2;
  percore_batch_size = 0.75;
  num_layers = 96;
  model_dims = 12288;
  seq_len = 2048;
  ici_mesh_shape = {1, 1, 1, 16};
  dcn_mesh_shape = {8, 1, 1, 1};
}

// Stages are connected by the slow links.
REGISTER_EXPERIMENT(
    lm_cloud, SpmdPipelineMultislice2B, LmCloudPipelineRecipe,
    "Pax's LmCloudSpmdPipelineMultislice2B: 2.14B weights; 2 slices, each a stage of 4 replicas") {
  microbatch_size = 4;
  percore_batch_size = 16;
  num_layers = 18;
  model_dims = 3072;
  ici_mesh_shape = {1, 4, 1, 1};
  dcn_mesh_shape = {2, 1, 1, 1};
}

REGISTER_EXPERIMENT(
    lm_cloud, SpmdPipelineMultislice2BCircular, SpmdPipelineMultislice2B,
    "Pax's LmCloudSpmdPipelineMultislice2BCircular: the same with 3 chunks of layers per stage") {
  microbatch_size = 8;
  circular_repeat = 3;
}

}  // namespace
}  // namespace tessera
