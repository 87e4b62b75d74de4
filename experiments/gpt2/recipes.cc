// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=gpt2.Small --smoke
// The base of GPT-2 models (Radford et al., 2019) as Levanter trains them on OpenWebText: its
// config/gpt2_*.yaml, with the defaults of its trainer and of its Adam, and its stability options
// as knobs.
//
// Levanter's option upcast_attn has no knob: attention scores and their softmax are always computed
// in f32.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/json.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "plugins/registry.h"
#include "tasks/recipes/recipe_data.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/schedules.h"
#include "tasks/task/single_task.h"

namespace tessera {
namespace {

constexpr double kInitScale = 0.02;
constexpr double kEpsilon = 1e-5;

WeightInit gaussian(double scale) { return {InitKind::kGaussian, scale}; }

struct Gpt2Recipe : Experiment {
  using Base = Experiment;
  Gpt2Recipe() { strategy = Strategy::kFullySharded; }  // Levanter: fsdp_axis = "embed".
  int64_t num_layers = 12;
  int64_t model_dims = 768;
  int64_t num_heads = 12;
  int64_t vocab_size = 50257;
  int64_t seq_len = 1024;
  int64_t global_batch_size = 512;
  double dropout_rate = 0.0;  // For embeddings, attention and residuals.
  DType compute_dtype = DType::kBF16;

  int64_t num_train_steps = 400'000;
  double learning_rate = 6e-4;
  double warmup = 0.01;  // Steps, or below 1 a fraction of num_train_steps.
  double min_learning_rate_ratio = 0.1;
  double weight_decay = 0.1;  // For matrices, but not for embeddings.
  double clip_gradient_norm = 1.0;

  // Stability options.
  bool scale_attention_by_inverse_layer = true;  // Divide the scores of layer i = 1, 2, … by i.
  bool use_qk_norm = false;                      // Normalise queries and keys, per head.
  double attention_logit_cap = 0.0;              // If > 0: cap·tanh(score/cap).
  double softmax_logit_cap = 0.0;
  double z_loss = 0.0;  // Weight of log²Z in the loss. Levanter: z_loss_weight.
  NormPolicy norm_policy = NormPolicy::kPre;
  double skip_step_gradient_norm = 0.0;  // Skip steps with a larger gradient; 0: none.

  RecipeData data = RecipeData::kFlatTokens;
  std::string flat_tokens_path = "data/openwebtext.h5";  // With splits `train` and `validation`.
  std::string text_path = "data/openwebtext.jsonl";      // Source text of the token file.
  std::string tokenizer = "data/gpt2/tokenizer.json";    // Tokenizer of the text.
  FIELDS(About(num_layers, kLayerCount), About(model_dims, kSize), About(num_heads, kSize),
         About(vocab_size, kSize), About(seq_len, kSize), About(global_batch_size, kSize),
         About(dropout_rate, "of embeddings, attention and residuals", kRate), compute_dtype,
         About(num_train_steps, kNotNegative), About(learning_rate, kNotNegative),
         About(warmup, "steps, or below 1 a fraction of num_train_steps", kNotNegative),
         About(min_learning_rate_ratio, "of the peak, at the end", kShare),
         About(weight_decay, "of matrices, but not of embeddings", kNotNegative),
         About(clip_gradient_norm, kNotNegative),
         About(scale_attention_by_inverse_layer, "divide the scores of layer i = 1, 2, … by i"),
         About(use_qk_norm, "normalise queries and keys, per head"),
         About(attention_logit_cap, "c in c·tanh(score/c); 0: none", kNotNegative),
         About(softmax_logit_cap, "the same for logits", kNotNegative),
         About(z_loss, "weight of log²Z in the loss", kNotNegative), norm_policy,
         About(skip_step_gradient_norm, "skip steps with a larger gradient; 0: none", kNotNegative),
         data, flat_tokens_path, text_path, tokenizer)

  ExperimentConfig build() const override {
    return {.mesh = mesh(),
            .task = SingleTask::HParams{.dtypes = DTypePolicy{.compute = compute_dtype},
                                        .model = model(),
                                        .learner = learner(),
                                        .train = {.num_train_steps = num_train_steps,
                                                  .remat_policy = "save_nothing",
                                                  .save_interval_steps = 1000,
                                                  .save_max_to_keep = 1,
                                                  .save_keep_every_steps = 10'000,
                                                  .eval_interval_steps = 1000}},
            .input = input("train"),
            .eval_inputs = {{"validation", input("validation")}}};
  }

  void shrink() override {
    Experiment::shrink();
    num_layers = 2;
    num_heads = 4;
    model_dims = num_heads * 8;
    vocab_size = 264;
    seq_len = 32;
    global_batch_size = 8;
    num_train_steps = kSmokeSteps;
    warmup = 2;
    data = RecipeData::kSynthetic;
  }

  std::optional<MissingData> missing_data(const ExperimentConfig& config) const {
    const RecipeFile text{
        text_path,
        "text_path",
        {"pip install -U datasets huggingface_hub",
         shell_command(
             {"python3", "-c",
              fmt::format(R"(import datasets; datasets.load_dataset("Skylion007/openwebtext", )"
                          R"(split="train").to_json({}))",
                          json_quoted(text_path))})}};
    const RecipeFile vocabulary{
        tokenizer,
        "tokenizer",
        {shell_command({"curl", "-L", "-o", tokenizer,
                        "https://huggingface.co/openai-community/gpt2/resolve/main/"
                        "tokenizer.json"})}};
    const RecipeFile tokens =
        built_tokens(flat_tokens_path, tokenizer, {"--validation_fraction=0.005"}, text_path);
    if (!reads<FlatTokensInput::HParams>(config.input, flat_tokens_path)) return std::nullopt;
    return missing_files(
        {text, vocabulary}, {tokens},
        "They fetch OpenWebText, 40 GB of text with 9 billion tokens. Without data, "
        "--mode=plan shows what a step needs, and --set data=synthetic trains on "
        "synthetic sequences.");
  }

 private:
  // Returns blocks that divide their scores by `layer`, from 1; 0: not divided.
  TransformerBlock::HParams block(int64_t layer) const {
    if (num_heads < 1 || model_dims % num_heads != 0)
      fail("num_heads={} does not divide model_dims={}", num_heads, model_dims);
    const int64_t head_dims = model_dims / num_heads;
    const WeightInit residual_init =
        gaussian(kInitScale / std::sqrt(2.0 * static_cast<double>(num_layers)));
    DotProductAttention::HParams attention{.combine_qkv = true,
                                           .use_bias = true,
                                           .logit_cap = attention_logit_cap,
                                           .dropout_rate = dropout_rate,
                                           .output_init = residual_init};
    if (layer > 0)
      attention.query_scale =
          1.0 / (std::sqrt(static_cast<double>(head_dims)) * static_cast<double>(layer));
    if (use_qk_norm) {
      const LayerNorm::HParams norm{
          .model_dims = head_dims, .axis = "head_dim", .epsilon = kEpsilon};
      attention.query_norm_tpl = norm;
      attention.key_norm_tpl = norm;
    }
    return {.norm_policy = norm_policy,
            .attention_tpl = attention,
            .ffn_tpl = FeedForward::HParams{.activation_tpl = GELU::HParams{.approximate = true},
                                            .use_bias = true,
                                            .down_init = residual_init},
            .norm_tpl = LayerNorm::HParams{.epsilon = kEpsilon},
            .residual_dropout_rate = dropout_rate};
  }

  // Returns the blocks; those that differ in a constant cannot be a loop over one block.
  Template<SequenceLayer> blocks() const {
    if (!scale_attention_by_inverse_layer) return Repeated::HParams{.block_tpl = block(0)};
    LayerSequence::HParams all;
    for (int64_t layer = 1; layer <= num_layers; ++layer)
      all.layers_tpl.push_back(
          StackedTransformer::HParams{.num_layers = 1, .block_tpl = block(layer)});
    return all;
  }

  Template<BaseModel> model() const {
    return LanguageModel::HParams{
        .lm_tpl = TransformerLm::HParams{
            .vocab_size = vocab_size,
            .model_dims = model_dims,
            .num_layers = num_layers,
            .num_heads = num_heads,
            .hidden_dims = 4 * model_dims,
            .segment_positions = false,
            .position_emb_tpl =
                TrainablePositionalEmbedding::HParams{
                    .max_seq_length = seq_len, .layer = {.params_init = gaussian(kInitScale / 2)}},
            .softmax_tpl = SharedEmbeddingSoftmax::HParams{.loss = {.z_loss = z_loss,
                                                                    .soft_cap = softmax_logit_cap}},
            .stacked_transformer_tpl = blocks(),
            .final_ln_tpl = LayerNorm::HParams{.epsilon = kEpsilon},
            .embedding_dropout_rate = dropout_rate,
            .params_init = gaussian(kInitScale)}};
  }

  Learner::HParams learner() const {
    const double steps = warmup < 1.0 ? warmup * static_cast<double>(num_train_steps) : warmup;
    const LinearRampupCosineDecay::HParams schedule{.warmup_steps = static_cast<int64_t>(steps),
                                                    .min_ratio = min_learning_rate_ratio};
    return {.optimizer_tpl = AdamW::HParams{.learning_rate = learning_rate,
                                            .schedule_tpl = schedule,
                                            .beta1 = 0.9,
                                            .beta2 = 0.95,
                                            .epsilon = 1e-8,
                                            .weight_decay = weight_decay},
            .clip_gradient_norm_to_value = clip_gradient_norm,
            .weight_decay_exclusion = {".*bias", ".*(norm|final_ln).*", ".*softmax.*",
                                       ".*position_emb.*"},
            .skip_step_gradient_norm_value = skip_step_gradient_norm};
  }

  Template<BaseInput> input(std::string_view split) const {
    if (data == RecipeData::kSynthetic)
      return generated_split(split, /*seed=*/0, global_batch_size, seq_len);
    return FlatTokensInput::HParams{.path = flat_tokens_path,
                                    .split = std::string(split),
                                    .global_batch_size = global_batch_size,
                                    .seq_len = seq_len,
                                    .labels = Labels::kNextInRow,
                                    .shuffle = Shuffle::kNone,
                                    .repeat = split == "train"};
  }
};

REGISTER_EXPERIMENT(gpt2, Small, Gpt2Recipe,
                    "Levanter's gpt2_small: GPT-2 of 124M weights; any number of devices") {}

REGISTER_EXPERIMENT(gpt2, SmallFast, Small,
                    "Levanter's gpt2_small_fast: gpt2.Small with 20000 steps of half the batch") {
  global_batch_size = 256;
  num_train_steps = 20'000;
  learning_rate = 1e-3;
}

REGISTER_EXPERIMENT(gpt2, Medium, Gpt2Recipe,
                    "Levanter's gpt2_medium: GPT-2 of 355M weights; any number of devices") {
  num_layers = 24;
  model_dims = 1024;
  num_heads = 16;
  learning_rate = 3e-4;
}

REGISTER_EXPERIMENT(gpt2, Large, Gpt2Recipe,
                    "Levanter's gpt2_large: GPT-2 of 774M weights; any number of devices") {
  num_layers = 36;
  model_dims = 1280;
  num_heads = 20;
  learning_rate = 2e-4;
}

REGISTER_EXPERIMENT(gpt2, Xl, Gpt2Recipe,
                    "Levanter's gpt2_xl: GPT-2 of 1.56B weights; any number of devices") {
  num_layers = 48;
  model_dims = 1600;
  num_heads = 25;
  learning_rate = 1e-4;
}

REGISTER_EXPERIMENT(
    gpt2, Nano, Gpt2Recipe,
    "Levanter's gpt2_nano: 1.7M weights and 100 steps, on synthetic data; any number of devices") {
  num_layers = 2;
  model_dims = 32;
  num_heads = 4;
  global_batch_size = 32;
  num_train_steps = 100;
  scale_attention_by_inverse_layer = false;
  data = RecipeData::kSynthetic;
}

}  // namespace
}  // namespace tessera
