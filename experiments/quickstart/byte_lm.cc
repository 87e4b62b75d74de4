// SPDX-License-Identifier: Apache-2.0
#include "experiments/quickstart/byte_lm.h"

#include <cmath>

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/flat_tokens/text_input.h"
#include "layers/models/language_model.h"
#include "layers/norms/norms.h"
#include "tasks/learner/schedules.h"
#include "tasks/single_task.h"

namespace tessera {
namespace {

constexpr double kInitScale = 0.02;

}  // namespace

Template<BaseModel> ByteLm::model() const {
  // As in GPT-2: the two outputs of a layer that are added to the residual have smaller weights.
  const WeightInit residual_init{InitKind::kGaussian,
                                 kInitScale / std::sqrt(2.0 * static_cast<double>(num_layers))};
  const DotProductAttention::HParams attention{.rotary_tpl = RotaryPositionEmbedding::HParams{},
                                               .output_init = residual_init};
  const FeedForward::HParams ffn{.activation_tpl = SiLU::HParams{},
                                 .use_gated_activation = true,
                                 .dropout_rate = dropout_rate,
                                 .down_init = residual_init};
  const TransformerBlock::HParams block{.attention_tpl = attention,
                                        .ffn_tpl = ffn,
                                        .norm_tpl = RmsNorm::HParams{},
                                        .residual_dropout_rate = dropout_rate};
  return LanguageModel::HParams{
      .lm_tpl = TransformerLm::HParams{
          .vocab_size = vocab_size,
          .model_dims = model_dims,
          .num_layers = num_layers,
          .num_heads = num_heads,
          .hidden_dims = hidden_dims,
          .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
          .final_ln_tpl = RmsNorm::HParams{},
          .embedding_dropout_rate = dropout_rate,
          .params_init = WeightInit{InitKind::kGaussian, kInitScale}}};
}

Learner::HParams ByteLm::learner() const {
  return {.optimizer_tpl = AdamW::HParams{.learning_rate = learning_rate,
                                          .schedule_tpl =
                                              LinearRampupCosineDecay::HParams{
                                                  .warmup_steps = warmup_steps,
                                                  .min_ratio = min_learning_rate_ratio},
                                          .beta2 = beta2,
                                          .weight_decay = weight_decay},
          .clip_gradient_norm_to_value = 1.0,
          .skip_lp_1d_vectors = true};
}

ExperimentConfig ByteLm::build() const {
  // Evaluation reads the corpus snapshot that the training input has written.
  const FlatTokensInput::HParams validation{.path = std::string(kCorpusSnapshot),
                                            .split = "validation",
                                            .global_batch_size = global_batch_size,
                                            .seq_len = seq_len,
                                            .shuffle = Shuffle::kNone,
                                            .repeat = false};
  return {.mesh = mesh(),
          .task = SingleTask::HParams{.dtypes = DTypePolicy{.compute = compute_dtype},
                                      .model = model(),
                                      .learner = learner(),
                                      .train = {.num_train_steps = num_train_steps,
                                                .save_interval_steps = 250,
                                                .eval_interval_steps = 250,
                                                .sample = {.length = sample_length}}},
          .input = TextInput::HParams{.global_batch_size = global_batch_size, .seq_len = seq_len},
          .eval_inputs = {{"validation", validation}}};
}

}  // namespace tessera
