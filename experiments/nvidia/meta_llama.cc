// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=nvidia.MetaLlama2_7B --smoke
// Meta's Llama 2 (Touvron et al., 2023, arXiv 2307.09288) and Llama 3 (Grattafiori et al., 2024,
// arXiv 2407.21783), as published: hyper-parameters of section 2.2 and of table 3. Initial weights,
// meshes, and batches of Llama 3 are ours; Llama 2's batch has 4 million tokens. Pax's Llama 2, in
// nvidia.cc, differs.
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "layers/models/language_model.h"
#include "plugins/registry.h"
#include "tasks/recipes/recipe_data.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/schedules.h"
#include "tasks/task/single_task.h"

namespace tessera {
namespace {

constexpr int64_t kMetaLlamaSeed = 1234;

struct MetaLlamaRecipe : Experiment {
  using Base = Experiment;
  // Weights are gathered within a host of eight devices, and gradients added over 16 hosts.
  MetaLlamaRecipe() {
    ici_mesh_shape = {1, 8, 1};
    dcn_mesh_shape = {16, 1, 1};
    strategy = Strategy::kFullySharded;
  }
  int64_t num_layers = 32;
  int64_t model_dims = 4096;
  int64_t hidden_dims = 11008;
  int64_t num_heads = 32;
  Field<int64_t> num_kv_heads;  // num_heads unless set.
  int64_t vocab_size = 32000;
  double rope_base = 10'000.0;
  double norm_epsilon = 1e-5;
  double init_std = 0.02;
  DType compute_dtype = DType::kBF16;

  std::string flat_tokens_path;  // With splits `train` and `validation`; empty: generated data.
  int64_t seq_len = 4096;
  int64_t global_batch_size = 1024;

  double learning_rate = 3e-4;
  int64_t warmup_steps = 2000;
  double min_learning_rate_ratio = 0.1;  // Fraction at the end of the run.
  double adam_epsilon = 1e-5;
  double weight_decay = 0.1;          // For matrices only.
  int64_t num_train_steps = 476'800;  // 2 trillion tokens.
  std::string remat_policy = "save_nothing";
  FIELDS(About(num_layers, kLayerCount), About(model_dims, kSize), About(hidden_dims, kSize),
         About(num_heads, kSize), About(num_kv_heads, kSize), About(vocab_size, kSize),
         About(rope_base, kPositive), About(norm_epsilon, kNotNegative),
         About(init_std, kNotNegative), compute_dtype, flat_tokens_path, About(seq_len, kSize),
         About(global_batch_size, kSize), About(learning_rate, kNotNegative),
         About(warmup_steps, kNotNegative),
         About(min_learning_rate_ratio, "of the peak, at the end", kShare),
         About(adam_epsilon, kNotNegative), About(weight_decay, "of matrices only", kNotNegative),
         About(num_train_steps, kNotNegative), remat_policy)

  ExperimentConfig build() const override {
    const LinearRampupCosineDecay::HParams schedule{.warmup_steps = warmup_steps,
                                                    .min_ratio = min_learning_rate_ratio};
    const Learner::HParams learner{.optimizer_tpl = AdamW::HParams{.learning_rate = learning_rate,
                                                                   .schedule_tpl = schedule,
                                                                   .beta2 = 0.95,
                                                                   .epsilon = adam_epsilon,
                                                                   .weight_decay = weight_decay},
                                   .clip_gradient_norm_to_value = 1.0,
                                   .skip_lp_1d_vectors = true};
    return {.mesh = mesh(),
            .task = SingleTask::HParams{.dtypes = DTypePolicy{.compute = compute_dtype},
                                        .model = model(),
                                        .learner = learner,
                                        .train = {.num_train_steps = num_train_steps,
                                                  .remat_policy = remat_policy,
                                                  .save_interval_steps = 1000,
                                                  .eval_interval_steps = 1000}},
            .input = input("train"),
            .eval_inputs = {{"validation", input("validation")}}};
  }

  void shrink() override {
    Experiment::shrink();
    num_layers = 2;
    const bool is_grouped = num_kv_heads.has() && num_kv_heads.get() < num_heads;
    num_heads = 4;
    if (num_kv_heads.has()) num_kv_heads = is_grouped ? 2 : 4;
    model_dims = num_heads * 8;
    hidden_dims = 3 * model_dims;
    vocab_size = 264;
    seq_len = 32;
    global_batch_size = 8;
    warmup_steps = 2;
    num_train_steps = kSmokeSteps;
  }

 private:
  Template<BaseModel> model() const {
    const RmsNorm::HParams norm{.epsilon = norm_epsilon};
    const TransformerBlock::HParams block{
        .attention_tpl =
            DotProductAttention::HParams{
                .num_kv_heads = num_kv_heads,
                .rotary_tpl = RotaryPositionEmbedding::HParams{.max_timescale = rope_base}},
        .ffn_tpl =
            FeedForward::HParams{.activation_tpl = SiLU::HParams{}, .use_gated_activation = true},
        .norm_tpl = norm};
    return LanguageModel::HParams{
        .lm_tpl =
            TransformerLm::HParams{.vocab_size = vocab_size,
                                   .model_dims = model_dims,
                                   .num_layers = num_layers,
                                   .num_heads = num_heads,
                                   .hidden_dims = hidden_dims,
                                   .separate_embedding_tpl = Embedding::HParams{},
                                   .softmax_tpl = FullSoftmax::HParams{},
                                   .stacked_transformer_tpl = Repeated::HParams{.block_tpl = block},
                                   .final_ln_tpl = norm,
                                   .params_init = WeightInit{InitKind::kGaussian, init_std}}};
  }

  Template<BaseInput> input(std::string_view split) const {
    const bool is_train = split == "train";
    if (flat_tokens_path.empty())
      return generated_split(split, kMetaLlamaSeed, global_batch_size, seq_len);
    return FlatTokensInput::HParams{.path = flat_tokens_path,
                                    .split = std::string(split),
                                    .global_batch_size = global_batch_size,
                                    .seq_len = seq_len,
                                    .shuffle = is_train ? Shuffle::kFull : Shuffle::kNone,
                                    .repeat = is_train,
                                    .seed = kMetaLlamaSeed};
  }
};

REGISTER_EXPERIMENT(nvidia, MetaLlama2_7B, MetaLlamaRecipe,
                    "Meta's Llama 2 7B: 6.74B weights; 16 hosts, in each weights over 8 devices") {}

REGISTER_EXPERIMENT(
    nvidia, MetaLlama2_13B, MetaLlamaRecipe,
    "Meta's Llama 2 13B: 13.02B weights; 16 hosts, in each weights over 8 devices") {
  num_layers = 40;
  model_dims = 5120;
  hidden_dims = 13824;
  num_heads = 40;
}

// Tensor and sequence parallel within a host; weights over 32 hosts.
struct MetaLlama70BRecipe : MetaLlamaRecipe {
  MetaLlama70BRecipe() {
    num_layers = 80;
    model_dims = 8192;
    hidden_dims = 28672;
    num_heads = 64;
    num_kv_heads = 8;
    learning_rate = 1.5e-4;
    ici_mesh_shape = {1, 1, 8};
    dcn_mesh_shape = {1, 32, 1};
    strategy = Strategy::kFullyShardedSequence;
  }
};

REGISTER_EXPERIMENT(
    nvidia, MetaLlama2_70B, MetaLlama70BRecipe,
    "Meta's Llama 2 70B: 68.98B weights; 32 hosts of 8 devices, which split layers") {}

// Changes a recipe for Llama 3. 15 trillion tokens in batches of 4 million.
template <typename Recipe>
struct MetaLlama3Recipe : Recipe {
  MetaLlama3Recipe() {
    this->num_kv_heads = 8;
    this->vocab_size = 128'256;
    this->rope_base = 500'000.0;
    this->seq_len = 8192;
    this->global_batch_size = 512;
    this->num_train_steps = 3'576'000;
  }
};

REGISTER_EXPERIMENT(nvidia, MetaLlama3_8B, MetaLlama3Recipe<MetaLlamaRecipe>,
                    "Meta's Llama 3 8B: 8.03B weights; 16 hosts, in each weights over 8 devices") {
  hidden_dims = 14336;
}

REGISTER_EXPERIMENT(
    nvidia, MetaLlama3_70B, MetaLlama3Recipe<MetaLlama70BRecipe>,
    "Meta's Llama 3 70B: 70.55B weights; 32 hosts of 8 devices, which split layers") {}

}  // namespace
}  // namespace tessera
