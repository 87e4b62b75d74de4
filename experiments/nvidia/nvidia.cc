// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=nvidia.Nvidia1_3B --smoke
// Pax's recipes of dense models by NVIDIA (paxml/tasks/lm/params/nvidia.py): without stages, in
// stages, and Llama-2. A proxy has the layers of a larger model, but fewer of them.
#include "experiments/nvidia/nvidia_recipe.h"
#include "layers/models/language_model.h"
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

REGISTER_EXPERIMENT(nvidia, Nvidia5B, NvidiaPipelineRecipe,
                    "Pax's NVIDIA5B: 5.05B weights in 4 stages; 4×2×1×2 devices") {}

REGISTER_EXPERIMENT(
    nvidia, TestSmallConfig, NvidiaPipelineRecipe,
    "Pax's TestSmallConfig: nvidia.Nvidia5B with 16 layers, 3.4B weights; 2×2×1×4 devices") {
  num_layers = 16;
  percore_batch_size = 2;
  ici_mesh_shape = {2, 2, 1, 4};
}

REGISTER_EXPERIMENT(
    nvidia, Nvidia40BProxy, NvidiaPipelineRecipe,
    "Pax's NVIDIA40BProxy: 12 layers 8192 wide, 10.1B weights in 2 stages; 2×2×1×4 devices") {
  num_layers = 12;
  model_dims = 8192;
  num_heads = 64;
  microbatch_size = 4;
  percore_batch_size = 16;
  ici_mesh_shape = {2, 2, 1, 4};
}

REGISTER_EXPERIMENT(
    nvidia, Nvidia70BProxy, Nvidia40BProxy,
    "Pax's NVIDIA70BProxy: 20 layers 8192 wide, 16.5B weights in 2 stages; 2×2×1×4 devices") {
  num_layers = 20;
  percore_batch_size = 8;
}

REGISTER_EXPERIMENT(
    nvidia, Nvidia116BProxy, NvidiaPipelineRecipe,
    "Pax's NVIDIA116BProxy: 16 layers 12288 wide, 29.6B weights in 4 stages; 4×1×1×4 devices") {
  num_layers = 16;
  model_dims = 12288;
  num_heads = 96;
  percore_batch_size = 6;
  ici_mesh_shape = {4, 1, 1, 4};
}

REGISTER_EXPERIMENT(
    nvidia, Nvidia175BProxy, Nvidia116BProxy,
    "Pax's NVIDIA175BProxy: 24 layers 12288 wide, 44.1B weights in 4 stages; 4×1×1×4 devices") {
  num_layers = 24;
  microbatch_size = 1;
}

REGISTER_EXPERIMENT(
    nvidia, Nvidia175B, Nvidia175BProxy,
    "Pax's NVIDIA175B: 175B weights, a batch of 6; 6 hosts, each a stage of 16 devices") {
  num_layers = 96;
  percore_batch_size = 0.0625;
  ici_mesh_shape = {1, 1, 1, 16};
  dcn_mesh_shape = {6, 1, 1, 1};
  optimizer = LmOptimizer::kAdafactor;
}

// Does not use the base above: ReLU, sinusoidal positions, f32.
REGISTER_EXPERIMENT(
    nvidia, CircularRepeat, TransformerLmAdamRecipe,
    "Pax's NVIDIA_CIRCULAR_REPEAT: 6.6B weights; 8 stages with 4 chunks of layers each") {
  num_layers = 32;
  model_dims = 4096;
  num_heads = 32;
  remat_policy = "save_dot_only";
  use_pipeline = true;
  num_microbatches = 8;
  circular_repeat = 4;
  ici_mesh_shape = {8, 1, 1, 1};
  init_std = 0.01;
  softmax_init_std = 0.01;
  learning_rate = 1.6e-4;
  schedule = LmSchedule::kCosine;
  warmup_steps = 115;
  decay_end = 62'500;
  num_train_steps = 2000;
  save_interval_steps = 250;
  summary_interval_steps = 10;
}

// Not Meta's models, which are in meta_llama.cc: the vocabulary has 51200 entries, one table embeds
// and scores, logits are capped, and products have biases.
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

// ./runexp --exp=nvidia.Pile126M --smoke
// Pax's recipes of GPT-3 for GPUs (paxml/contrib/gpu/scripts_gpu/configs.py), on the Pile and on
// generated sequences.

struct Gpt126M : Sizes126M<NvidiaRecipe> {
  Gpt126M() {
    use_gpt3_layers();
    use_repeated_layer = false;
    ici_mesh_shape = {8, 1, 1};
    dcn_mesh_shape = {8, 1, 1};
  }
};

// Pax's GPT5BBase.
struct Gpt5B : Gpt126M {
  Gpt5B() {
    num_layers = 24;
    model_dims = 4096;
    dims_per_head = 128;
    use_repeated_layer = true;
    remat_policy = "save_dot_with_no_batch_dims";
    percore_batch_size = 8;
    ici_mesh_shape = {1, 8, 1};
    dcn_mesh_shape = {1, 32, 1};
    init_std = 0.01;
    softmax_init_std = 0.01;
    learning_rate = 1.6e-4;
    warmup_steps = 115;
    decay_end = 62'500;
    num_train_steps = 75'000;
    save_interval_steps = 250;
    summary_interval_steps = 10;
  }

 protected:
  Template<BaseModel> model() const override {
    Template<BaseModel> model = Gpt126M::model();
    model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>().embedding_dropout_rate =
        0.1;
    return model;
  }
};

// Pax's GPT175BBase.
struct Gpt175B : Gpt126M {
  Gpt175B() {
    num_layers = 96;
    model_dims = 12288;
    dims_per_head = 128;
    vocab_size = 50257;
    use_repeated_layer = true;
    percore_batch_size = 6;
    ici_mesh_shape = {1, 8, 1};
    dcn_mesh_shape = {1, 32, 1};
    learning_rate = 2e-5;
    warmup_steps = 265;
    decay_end = 108'600;
    num_train_steps = 75'000;
    save_interval_steps = 100;
    summary_interval_steps = 10;
  }
};

REGISTER_EXPERIMENT(nvidia, Pile126M, OnThePile<Gpt126M>,
                    "Pax's Pile126M: a GPT of 0.125B weights on the Pile; 8 hosts of 8 replicas") {}

REGISTER_EXPERIMENT(
    nvidia, Pile5B, OnThePile<Gpt5B>,
    "Pax's Pile5B/GPT5B: a GPT of 5.05B weights on the Pile; 32 hosts of 1×8×1 devices") {}

REGISTER_EXPERIMENT(
    nvidia, Pile175B, OnThePile<Gpt175B>,
    "Pax's Pile175B/GPT175B: GPT-3 of 175B weights on the Pile; 32 hosts of 1×8×1 devices") {}

constexpr int64_t kSyntheticSteps = 100;

REGISTER_EXPERIMENT(
    nvidia, Synthetic126M, Gpt126M,
    "Pax's Synthetic126M: nvidia.Pile126M, 0.125B weights, on generated data for 100 steps") {
  num_train_steps = kSyntheticSteps;
}

REGISTER_EXPERIMENT(
    nvidia, Synthetic5B, Gpt5B,
    "Pax's Synthetic5B: nvidia.Pile5B, 5.05B weights, on generated data for 100 steps") {
  num_train_steps = kSyntheticSteps;
}

REGISTER_EXPERIMENT(
    nvidia, Synthetic175B, Gpt175B,
    "Pax's Synthetic175B: nvidia.Pile175B, 175B weights, on generated data for 100 steps") {
  num_train_steps = kSyntheticSteps;
}

}  // namespace
}  // namespace tessera
