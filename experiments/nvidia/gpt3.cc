// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=nvidia.Pile126M --smoke
// Pax's recipes of GPT-3 for GPUs (paxml/contrib/gpu/scripts_gpu/configs.py), on the Pile and on
// generated sequences.
#include "experiments/nvidia/nvidia_recipe.h"
#include "layers/models/language_model.h"
#include "plugins/registry.h"

namespace tessera {
namespace {

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
