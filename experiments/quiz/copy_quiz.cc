// SPDX-License-Identifier: Apache-2.0
// quiz.CopyQuiz: a small model learns to copy letters. Besides its loss, it is scored with metrics
// of this plugin: multiple choice between copies, and exact match of generated copies.
#include "experiments/quiz/metrics.h"
#include "experiments/quiz/question_input.h"
#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "plugins/registry.h"
#include "tasks/single_task.h"

namespace tessera {

struct CopyQuiz : Experiment {
  using Base = Experiment;
  static constexpr std::string_view kSummary =
      "metrics in a plugin: multiple choice by likelihood, exact match of continuations";
  int64_t question_length = 4;
  int64_t num_letters = 10;
  int64_t num_choices = 4;
  int64_t model_dims = 32;
  int64_t num_train_steps = 1000;
  int64_t eval_interval_steps = 250;
  FIELDS(question_length, num_letters, num_choices, model_dims, num_train_steps,
         eval_interval_steps)

  ExperimentConfig build() const override {
    SyntheticInput::HParams letters{.task = SyntheticTask::kCopy,
                                    .name = "letters",
                                    .global_batch_size = 32,
                                    .seq_len = 2 * question_length,
                                    .num_letters = num_letters,
                                    .distance = question_length};
    SyntheticInput::HParams validation = letters;
    validation.seed = 99;
    validation.num_batches = 2;
    const SyntheticInput known(letters);  // Has the ids of letters.
    const QuestionInput::HParams questions{.global_batch_size = 32,
                                           .num_choices = num_choices,
                                           .question_length = question_length,
                                           .num_letters = num_letters,
                                           .first_letter = known.vocab_size() - num_letters};
    const TransformerLm::HParams lm{.vocab_size = known.vocab_size(),
                                    .model_dims = model_dims,
                                    .num_layers = 2,
                                    .num_heads = 2,
                                    .hidden_dims = 4 * model_dims,
                                    .position_emb_tpl = TrainablePositionalEmbedding::HParams{
                                        .max_seq_length = 2 * question_length}};
    ExperimentConfig config{
        .mesh = mesh(),
        .task =
            SingleTask::HParams{.model = LanguageModel::HParams{.lm_tpl = lm},
                                .learner = {.optimizer_tpl = AdamW::HParams{.learning_rate = 3e-3}},
                                .train = {.num_train_steps = num_train_steps,
                                          .save_interval_steps = eval_interval_steps,
                                          .eval_interval_steps = eval_interval_steps}},
        .input = letters,
        .eval_inputs = {{"questions", questions}, {"validation", validation}}};
    config.eval.datasets["questions"].score_metrics["choice"] =
        MultipleChoice::HParams{.num_choices = num_choices};
    EvalHParams& copies = config.eval.datasets["validation"];
    copies.predict_metrics["copy"] = ExactMatch::HParams{};
    copies.decode = DecodeHParams{.strategy = DecodeStrategy::kGreedy,
                                  .max_decode_steps = question_length,
                                  .batch = 64,
                                  .prefill_chunk = question_length};
    return config;
  }
};
REGISTER_EXPERIMENT(quiz, CopyQuiz)

}  // namespace tessera
