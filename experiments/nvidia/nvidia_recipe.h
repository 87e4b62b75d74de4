// SPDX-License-Identifier: Apache-2.0
// The bases of Pax's recipes by NVIDIA (paxml/tasks/lm/params/nvidia.py): GPT-like models with
// learned positions and GELU, on generated sequences. They set knobs only.
#pragma once

#include "tasks/recipes/transformer_lm_recipe.h"

namespace tessera {

// Pax's NVIDIA1_3B. Caps of scores and logits, and biases of feed-forward layers and softmax, are
// those of Pax's other recipes.
struct NvidiaRecipe : TransformerLmAdamRecipe {
  NvidiaRecipe() {
    num_layers = 24;
    model_dims = 2048;
    num_heads = 32;
    vocab_size = 51200;
    seq_len = 2048;
    percore_batch_size = 4;
    ici_mesh_shape = {16, 1, 1};
    compute_dtype = DType::kBF16;
    activation_tpl = GELU::HParams{.approximate = true};
    positions = LmPositions::kTrainable;
    trainable_positions = 2048;
    use_repeated_layer = true;
    init_std = 0.023;
    softmax_init_std = 0.023;
    beta2 = 0.95;
    adam_epsilon = 1e-8;
    clip_gradient_norm = 1.0;
    learning_rate = 6e-4;
    schedule = LmSchedule::kCosine;
    warmup_steps = 0;
    decay_end = 500'000;
    save_interval_steps = 100'000;
  }
};

// Pax's NVIDIA5B, in stages.
struct NvidiaPipelineRecipe : NvidiaRecipe {
  NvidiaPipelineRecipe() {
    model_dims = 4096;
    use_pipeline = true;
    microbatch_size = 2;
    percore_batch_size = 1;
    ici_mesh_shape = {4, 2, 1, 2};
  }
};

}  // namespace tessera
