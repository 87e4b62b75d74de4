// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=nvidia.Llama2_7B --smoke
// Pax's Llama-2 (paxml/tasks/lm/params/nvidia.py). It is not Meta's model, which is in
// meta_llama.cc: the vocabulary has 51200 entries, one table embeds and scores, logits are capped,
// and products have biases.
#include "experiments/nvidia/nvidia_recipe.h"
#include "plugins/registry.h"

namespace tessera {
namespace {

REGISTER_EXPERIMENT(
    nvidia, Llama2_7B, NvidiaRecipe,
    "Pax's Llama2_7B, with caps, biases and one table: 6.69B weights; 1×16×1 devices") {
  num_layers = 32;
  model_dims = 4096;
  hidden_dims = 11008;
  num_heads = 32;
  num_kv_heads = 32;
  seq_len = 4096;
  percore_batch_size = 1;
  ici_mesh_shape = {1, 16, 1};
  activation_tpl = SiLU::HParams{};
  use_gated_activation = true;
  // praxis's GroupedQueryAttention takes the place of an attention without biases and with a cap,
  // and has its own defaults.
  use_attention_bias = true;
  use_per_dim_scale = false;
  attention_logit_cap = 0.0;
  positions = LmPositions::kRotary;
  norm_kind = LmNorm::kRmsNorm;
  num_train_steps = 100;
}

REGISTER_EXPERIMENT(
    nvidia, Llama2_13B, Llama2_7B,
    "Pax's Llama2_13B, with caps, biases and one table: 12.95B weights; 1×16×1 devices") {
  num_layers = 40;
  model_dims = 5120;
  hidden_dims = 13824;
  num_heads = 40;
  num_kv_heads = 40;
}

REGISTER_EXPERIMENT(
    nvidia, Llama2_70B, Llama2_7B,
    "Pax's Llama2_70B, with caps, biases and one table: 68.9B weights; 4 hosts of 1×16×1 devices") {
  num_layers = 80;
  model_dims = 8192;
  hidden_dims = 28672;
  num_heads = 64;
  num_kv_heads = 8;
  dcn_mesh_shape = {1, 4, 1};
}

}  // namespace
}  // namespace tessera
