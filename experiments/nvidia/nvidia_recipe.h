// SPDX-License-Identifier: Apache-2.0
// The bases of Pax's recipes by NVIDIA: GPT-like models with learned positions and GELU, on
// generated sequences (paxml/tasks/lm/params/nvidia.py) or on the Pile
// (paxml/contrib/gpu/scripts_gpu/configs.py). They set knobs only.
#pragma once

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "tasks/recipes/recipe_data.h"
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

// Pax's GPT126MBase without its layers and mesh, which differ where every second layer is a
// mixture.
template <typename Recipe>
struct Sizes126M : Recipe {
  Sizes126M() {
    this->num_layers = 12;
    this->model_dims = 768;
    this->dims_per_head = 64;
    this->num_heads.reset();
    this->vocab_size = 50304;
    this->percore_batch_size = 4;
    this->use_gpt3_optimizer();
    this->learning_rate = 6e-4;
    this->warmup_steps = 636;
    this->decay_end = 500'000;
    this->num_train_steps = 600'000;
    this->save_interval_steps = 5000;
  }
};

// A recipe on the Pile (Gao et al., 2020, arXiv 2101.00027), the part of it that may be
// distributed: files of JSON lines. One of 30 is enough to start with.
template <typename Recipe>
struct OnThePile : Recipe {
  using Base = Recipe;
  OnThePile() { this->flat_tokens_path = "data/the_pile.h5"; }
  std::string tokenizer = "data/the_pile.50257.model";
  FIELDS(tokenizer)

  void shrink() override {
    Recipe::shrink();
    this->flat_tokens_path.clear();
  }

  std::optional<MissingData> missing_data(const ExperimentConfig& config) const {
    if (!reads<FlatTokensInput::HParams>(config.input, this->flat_tokens_path)) return std::nullopt;
    const std::string text = "data/pile/train/00.jsonl.zst", held_out = "data/pile/val.jsonl.zst";
    const RecipeFile download{text,
                              "flat_tokens_path",
                              {"pip install -U huggingface_hub",
                               "hf download monology/pile-uncopyrighted --repo-type dataset "
                               "--local-dir data/pile --include train/00.jsonl.zst val.jsonl.zst"}};
    return missing_files(
        {download, trained_tokenizer(tokenizer, 50257, text)},
        {built_tokens(this->flat_tokens_path, tokenizer, {"--validation=" + held_out}, text)},
        "They fetch the first of 30 files. Without data, --mode=plan shows what a step needs, and "
        "--set flat_tokens_path= trains on synthetic sequences.");
  }
};

}  // namespace tessera
