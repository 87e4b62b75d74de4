// SPDX-License-Identifier: Apache-2.0
// my_project.Sorter: a small transformer that learns to sort letters.
#include "ffn.h"
#include "layers/models/language_model.h"
#include "layers/norms/norms.h"
#include "plugins/registry.h"
#include "tasks/task/learner/schedules.h"
#include "tasks/task/single_task.h"
#include "words.h"

namespace my_project {

using namespace tessera;

struct Sorter : Experiment {
  using Base = Experiment;
  static constexpr std::string_view kSummary = "learns to sort letters";
  int64_t num_layers = 2;
  int64_t model_dims = 64;
  int64_t num_train_steps = 500;
  double learning_rate = 3e-3;
  FIELDS(num_layers, model_dims, num_train_steps, learning_rate)

  ExperimentConfig build() const override {
    return {
        .mesh = mesh(),
        .task = SingleTask::HParams{.model = LanguageModel::HParams{.lm_tpl = transformer()},
                                    .learner = learner(),
                                    .train = {.num_train_steps = num_train_steps,
                                              .eval_interval_steps = 100},
                                    .decode = {.temperature = 0.0, .stop_strings = {"\n"}}},
        .input = Words::HParams{.global_batch_size = 256},
        .eval_inputs = {
            {"validation", Words::HParams{.global_batch_size = 256, .seed = 2, .num_batches = 4}}}};
  }

  TransformerLm::HParams transformer() const {
    const DotProductAttention::HParams attention{.rotary_tpl = RotaryPositionEmbedding::HParams{}};
    const TransformerBlock::HParams block{
        .attention_tpl = attention, .ffn_tpl = Ffn::HParams{}, .norm_tpl = RmsNorm::HParams{}};
    return {.vocab_size = 257,
            .model_dims = model_dims,
            .num_layers = num_layers,
            .num_heads = 4,
            .hidden_dims = 4 * model_dims,
            .stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block},
            .final_ln_tpl = RmsNorm::HParams{},
            .params_init = WeightInit{InitKind::kGaussian, 0.02}};
  }

  Learner::HParams learner() const {
    const LinearRampupCosineDecay::HParams schedule{.warmup_steps = 50};
    return {
        .optimizer_tpl = AdamW::HParams{.learning_rate = learning_rate, .schedule_tpl = schedule},
        .clip_gradient_norm_to_value = 1.0};
  }
};
REGISTER_EXPERIMENT(my_project, Sorter)

}  // namespace my_project
