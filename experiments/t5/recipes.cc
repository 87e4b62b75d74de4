// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=t5.V11Small --smoke
// T5 version 1.1 (Raffel et al., 2020; t5x/examples/t5/t5_1_1 of github.com/google-research/t5x):
// encoder-decoder models that are pre-trained on corrupted spans of C4. The trained weights are
// exported as the family `t5` of Hugging Face.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/span_corruption_input.h"
#include "layers/models/language_model.h"
#include "plugins/registry.h"
#include "tasks/recipes/c4_recipe.h"
#include "tasks/recipes/recipe_data.h"
#include "tasks/task/learner/schedules.h"
#include "tasks/task/single_task.h"

namespace tessera {
namespace {

constexpr int64_t kSeed = 9876;

struct T5Recipe : Experiment {
  using Base = Experiment;
  int64_t num_layers = 8;  // In the encoder, and as many in the decoder.
  int64_t model_dims = 512;
  int64_t hidden_dims = 1024;
  int64_t num_heads = 6;
  int64_t dims_per_head = 64;
  int64_t vocab_size = 32128;         // 32000 ids of the tokenizer, 100 sentinels, and padding.
  int64_t first_sentinel_id = 32099;  // The next ones are below it.
  int64_t seq_len = 568;  // Tokens of a text: 512 for the encoder and 114 for the decoder.
  int64_t global_batch_size = 2048;
  double dropout_rate = 0.0;  // In pre-training.
  double z_loss = 1e-4;
  double learning_rate = 0.01;  // Until warmup_steps, and then falling as 1/√step.
  int64_t warmup_steps = 10'000;
  int64_t num_train_steps = 1'000'000;
  DType compute_dtype = DType::kBF16;
  RecipeData data = RecipeData::kFlatTokens;
  std::string flat_tokens_path = "data/c4_en.h5";  // As of the c4 recipes.
  FIELDS(About(num_layers, kLayerCount), About(model_dims, kSize), About(hidden_dims, kSize),
         About(num_heads, kSize), About(dims_per_head, kSize), About(vocab_size, kSize),
         About(first_sentinel_id, kNotNegative), About(seq_len, {.min = 2}),
         About(global_batch_size, kSize), About(dropout_rate, kRate), About(z_loss, kNotNegative),
         About(learning_rate, kNotNegative), About(warmup_steps, kSize),
         About(num_train_steps, kNotNegative), compute_dtype, data, flat_tokens_path)

  ExperimentConfig build() const override {
    const Adafactor::HParams optimizer{
        .learning_rate = learning_rate,
        .schedule_tpl = LinearRampupSqrtDecay::HParams{.warmup_steps = warmup_steps}};
    return {.mesh = mesh(),
            .task = SingleTask::HParams{.dtypes = DTypePolicy{.compute = compute_dtype},
                                        .model = model(),
                                        .learner = {.optimizer_tpl = optimizer},
                                        .train = {.num_train_steps = num_train_steps,
                                                  .remat_policy = "save_dot_only",
                                                  .save_interval_steps = 5000,
                                                  .eval_interval_steps = 1000}},
            .input = input("train"),
            .eval_inputs = {{"validation", input("validation")}}};
  }

  void shrink() override {
    Base::shrink();
    num_layers = 2;
    model_dims = 64;
    hidden_dims = 128;
    num_heads = 4;
    dims_per_head = 16;
    vocab_size = 384;
    first_sentinel_id = 383;
    seq_len = 64;
    global_batch_size = 8;
    warmup_steps = 20;
    num_train_steps = 50;
    data = RecipeData::kSynthetic;
  }

  std::optional<MissingData> missing_data(const ExperimentConfig& config) const {
    if (!config.input.holds<SpanCorruptionInput::HParams>()) return std::nullopt;
    C4Recipe of_tokens;
    of_tokens.flat_tokens_path = flat_tokens_path;
    ExperimentConfig tokens = config;
    tokens.input = config.input.as<SpanCorruptionInput::HParams>().input_tpl;
    return of_tokens.missing_data(tokens);
  }

 private:
  // 1/√d_kv, by which scores are multiplied elsewhere, is in the initial queries.
  DotProductAttention::HParams attention() const {
    const double shrunk = 1.0 / std::sqrt(static_cast<double>(dims_per_head));
    return {.dims_per_head = dims_per_head,
            .causal = false,
            .query_scale = 1.0,
            .dropout_rate = dropout_rate,
            .query_init = WeightInit{InitKind::kGaussianSqrtFanIn, shrunk}};
  }

  // A block of the "encoder" or the "decoder".
  TransformerBlock::HParams block(std::string_view stack) const {
    const bool decodes = stack == "decoder";
    DotProductAttention::HParams self = attention();
    self.causal = decodes;
    RelativePositionBias::HParams bias{.bidirectional = !decodes};
    bias.layer.shared_id = fmt::format("{}_bias", stack);
    self.position_bias_tpl = bias;
    TransformerBlock::HParams block{
        .attention_tpl = self,
        .ffn_tpl = FeedForward::HParams{.activation_tpl = GELU::HParams{.approximate = true},
                                        .use_gated_activation = true,
                                        .use_bias = false,
                                        .dropout_rate = dropout_rate},
        .norm_tpl = RmsNorm::HParams{},
        .residual_dropout_rate = dropout_rate};
    if (!decodes) return block;
    DotProductAttention::HParams cross = attention();
    cross.cross = true;
    block.cross_attention_tpl = cross;
    return block;
  }

  LanguageModel::HParams model() const {
    const TransformerEncoder::HParams encoder{
        .stacked_transformer_tpl = Repeated::HParams{.block_tpl = block("encoder")},
        .final_ln_tpl = RmsNorm::HParams{},
        .dropout_rate = dropout_rate};
    return {
        .lm_tpl = TransformerLm::HParams{
            .vocab_size = vocab_size,
            .model_dims = model_dims,
            .num_layers = num_layers,
            .num_heads = num_heads,
            .hidden_dims = hidden_dims,
            .separate_embedding_tpl =
                Embedding::HParams{.layer = {.params_init = WeightInit{InitKind::kGaussian, 1.0}}},
            .softmax_tpl = FullSoftmax::HParams{.loss = {.z_loss = z_loss}},
            .encoder_tpl = encoder,
            .stacked_transformer_tpl = Repeated::HParams{.block_tpl = block("decoder")},
            .final_ln_tpl = RmsNorm::HParams{},
            .embedding_dropout_rate = dropout_rate,
            .params_init = WeightInit{InitKind::kGaussianSqrtFanIn, 1.0}}};
  }

  Template<BaseInput> input(std::string_view split) const {
    const bool trains = split == "train";
    Template<BaseInput> tokens_tpl;
    if (data == RecipeData::kSynthetic) {
      SyntheticInput::HParams generated = generated_split(split, kSeed);
      generated.score_all = true;
      tokens_tpl = generated;
    } else {
      tokens_tpl = FlatTokensInput::HParams{.path = flat_tokens_path,
                                            .split = std::string(split),
                                            .labels = Labels::kShiftRight,
                                            .shuffle = trains ? Shuffle::kFull : Shuffle::kNone,
                                            .repeat = trains,
                                            .seed = kSeed};
    }
    return SpanCorruptionInput::HParams{.input_tpl = tokens_tpl,
                                        .first_sentinel_id = first_sentinel_id,
                                        .global_batch_size = global_batch_size,
                                        .seq_len = seq_len,
                                        .seed = trains ? kSeed : kSeed + 1};
  }
};

REGISTER_EXPERIMENT(t5, V11Small, T5Recipe,
                    "T5 1.1 small: 77M weights, pre-trained on corrupted spans of C4") {}

REGISTER_EXPERIMENT(t5, V11Base, T5Recipe,
                    "T5 1.1 base: 248M weights, pre-trained on corrupted spans of C4") {
  num_layers = 12;
  model_dims = 768;
  hidden_dims = 2048;
  num_heads = 12;
}

REGISTER_EXPERIMENT(t5, V11Large, T5Recipe,
                    "T5 1.1 large: 783M weights, pre-trained on corrupted spans of C4") {
  num_layers = 24;
  model_dims = 1024;
  hidden_dims = 2816;
  num_heads = 16;
}

}  // namespace
}  // namespace tessera
