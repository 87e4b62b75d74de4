// SPDX-License-Identifier: Apache-2.0
// Pax's NVIDIA recipes without stages (paxml/tasks/lm/params/nvidia.py).
#include "experiments/nvidia/nvidia_recipe.h"
#include "plugins/registry.h"

namespace tessera {
namespace {

struct Nvidia1_3B : NvidiaRecipe {
  static constexpr std::string_view kSummary = "Pax's NVIDIA1_3B: 1.3B weights; 16 replicas";
};
REGISTER_EXPERIMENT(nvidia, Nvidia1_3B)

struct Nvidia8_3B : NvidiaRecipe {
  static constexpr std::string_view kSummary = "Pax's NVIDIA8_3B: 8.3B weights; 4×1×4 devices";
  Nvidia8_3B() {
    num_layers = 40;
    model_dims = 4096;
    num_heads = 64;
    ici_mesh_shape = {4, 1, 4};
  }
};
REGISTER_EXPERIMENT(nvidia, Nvidia8_3B)

struct Nvidia10B : NvidiaRecipe {
  static constexpr std::string_view kSummary =
      "Pax's NVIDIA10B: 10.3B weights, a batch of 4; 2×1×8 devices";
  Nvidia10B() {
    num_layers = 32;
    model_dims = 5120;
    num_heads = 40;
    percore_batch_size = 0.25;
    ici_mesh_shape = {2, 1, 8};
  }
};
REGISTER_EXPERIMENT(nvidia, Nvidia10B)

// Llama's sizes in a GPT: the feed-forward layers are not gated, which leaves 25 of 33 billion.
struct Llama33BProxy : NvidiaRecipe {
  static constexpr std::string_view kSummary =
      "Pax's Llama33BProxy: a GPT of 25B weights with Llama's sizes; 1×16×1 devices";
  Llama33BProxy() {
    num_layers = 60;
    model_dims = 6656;
    hidden_dims = 17920;
    num_heads = 52;
    vocab_size = 32000;
    percore_batch_size = 1;
    ici_mesh_shape = {1, 16, 1};
    optimizer = LmOptimizer::kAdafactor;
  }
};
REGISTER_EXPERIMENT(nvidia, Llama33BProxy)

struct Nvidia175BFsdp : NvidiaRecipe {
  static constexpr std::string_view kSummary =
      "Pax's NVIDIA175B_FSDP: 175B weights, fully sharded; 8 hosts of 1×16×1 devices";
  Nvidia175BFsdp() {
    num_layers = 96;
    model_dims = 12288;
    num_heads = 96;
    percore_batch_size = 1;
    ici_mesh_shape = {1, 16, 1};
    dcn_mesh_shape = {1, 8, 1};
    optimizer = LmOptimizer::kAdafactor;
  }
};
REGISTER_EXPERIMENT(nvidia, Nvidia175BFsdp)

}  // namespace
}  // namespace tessera
