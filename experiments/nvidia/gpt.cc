// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=nvidia.Nvidia1_3B --smoke
// Pax's NVIDIA recipes without stages (paxml/tasks/lm/params/nvidia.py).
#include "experiments/nvidia/nvidia_recipe.h"
#include "plugins/registry.h"

namespace tessera {
namespace {

REGISTER_EXPERIMENT(nvidia, Nvidia1_3B, NvidiaRecipe,
                    "Pax's NVIDIA1_3B: 1.3B weights; 16 replicas") {}

REGISTER_EXPERIMENT(nvidia, Nvidia8_3B, NvidiaRecipe,
                    "Pax's NVIDIA8_3B: 8.3B weights; 4×1×4 devices") {
  num_layers = 40;
  model_dims = 4096;
  num_heads = 64;
  ici_mesh_shape = {4, 1, 4};
}

REGISTER_EXPERIMENT(nvidia, Nvidia10B, NvidiaRecipe,
                    "Pax's NVIDIA10B: 10.3B weights, a batch of 4; 2×1×8 devices") {
  num_layers = 32;
  model_dims = 5120;
  num_heads = 40;
  percore_batch_size = 0.25;
  ici_mesh_shape = {2, 1, 8};
}

// Llama's sizes in a GPT: the feed-forward layers are not gated, which leaves 25 of 33 billion.
REGISTER_EXPERIMENT(
    nvidia, Llama33BProxy, NvidiaRecipe,
    "Pax's Llama33BProxy: a GPT of 25B weights with Llama's sizes; 1×16×1 devices") {
  num_layers = 60;
  model_dims = 6656;
  hidden_dims = 17920;
  num_heads = 52;
  vocab_size = 32000;
  percore_batch_size = 1;
  ici_mesh_shape = {1, 16, 1};
  optimizer = LmOptimizer::kAdafactor;
}

REGISTER_EXPERIMENT(
    nvidia, Nvidia175BFsdp, NvidiaRecipe,
    "Pax's NVIDIA175B_FSDP: 175B weights, fully sharded; 8 hosts of 1×16×1 devices") {
  num_layers = 96;
  model_dims = 12288;
  num_heads = 96;
  percore_batch_size = 1;
  ici_mesh_shape = {1, 16, 1};
  dcn_mesh_shape = {1, 8, 1};
  optimizer = LmOptimizer::kAdafactor;
}

}  // namespace
}  // namespace tessera
