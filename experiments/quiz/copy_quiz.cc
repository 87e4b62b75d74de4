// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=quiz.CopyQuiz
// quiz.CopyQuiz: a small model learns to copy letters. Besides its loss, it is scored with metrics
// of this plugin: multiple choice between copies, and exact match of generated copies.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/indexed_input.h"
#include "inputs/shuffle.h"
#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "plugins/registry.h"
#include "tasks/run/decode/decode_examples.h"
#include "tasks/task/eval_metrics.h"
#include "tasks/task/single_task.h"

namespace tessera {

// Generated multiple-choice questions: letters, and candidates for their copy. The rows of a
// question are consecutive, the correct answer first; the others differ from it in one letter.
class QuestionInput final : public IndexedInput {
 public:
  struct HParams {
    using Instance = QuestionInput;
    Required<int64_t> global_batch_size;
    int64_t num_questions = 32;
    int64_t num_choices = 4;
    int64_t question_length = 4;  // Also the length of an answer.
    int64_t num_letters = 10;
    int64_t first_letter = 11;  // Its id; the others follow.
    int64_t seed = 1;
    FIELDS(About(global_batch_size, kSize), About(num_questions, kSize),
           About(num_choices, {.min = 2}), About(question_length, kSize),
           About(num_letters, {.min = 2}), About(first_letter, kNotNegative), seed)
  };

  explicit QuestionInput(const HParams& p)
      : IndexedInput({.name = "questions",
                      .global_batch_size = p.global_batch_size.get(),
                      .seq_len = 2 * p.question_length,
                      .seed = static_cast<uint64_t>(p.seed)}),
        p_(p) {
    if (p.num_choices - 1 > p.question_length * (p.num_letters - 1))
      fail("QuestionInput: num_choices is {}, but only {} answers differ in one letter",
           p.num_choices, 1 + p.question_length * (p.num_letters - 1));
  }

  int64_t vocab_size() const override { return p_.first_letter + p_.num_letters; }
  // Returns the question's letters, then those of answer `choice`.
  std::vector<int32_t> tokens(int64_t question, int64_t choice) const {
    const auto draw = [&](int64_t what) {
      const uint64_t key = mix_bits(static_cast<uint64_t>(question), stream().seed);
      return static_cast<int64_t>(mix_bits(static_cast<uint64_t>(what), key) >> 1);
    };
    std::vector<int32_t> letters;
    for (int64_t i = 0; i < p_.question_length; ++i)
      letters.push_back(static_cast<int32_t>(draw(i) % p_.num_letters));
    std::vector<int32_t> answer = letters;
    if (choice > 0) {
      // One of the answers with one wrong letter, a different one for each choice.
      const int64_t wrong_answers = p_.question_length * (p_.num_letters - 1);
      const int64_t which = (draw(p_.question_length) % wrong_answers + choice) % wrong_answers;
      int32_t& letter = answer[static_cast<size_t>(which % p_.question_length)];
      const int64_t shift = 1 + which / p_.question_length;
      letter = static_cast<int32_t>((letter + shift) % p_.num_letters);
    }
    letters.insert(letters.end(), answer.begin(), answer.end());
    for (int32_t& letter : letters) letter += static_cast<int32_t>(p_.first_letter);
    return letters;
  }

 private:
  std::optional<int64_t> num_examples() const override { return p_.num_questions * p_.num_choices; }

  void fill_example(int64_t, int64_t index, const TokenRow& row) const override {
    const std::vector<int32_t> all = tokens(index / p_.num_choices, index % p_.num_choices);
    fill_document(all, row);
    std::fill_n(row.weights.begin(), all.size() / 2, 0.0f);  // Only the answer is scored.
  }

  HParams p_;
};

REGISTER_TEMPLATE(BaseInput, QuestionInput);

// Measures how often the generated text equals the reference, ignoring white space at either end.
class ExactMatch final : public PredictMetric {
 public:
  struct HParams {
    using Instance = ExactMatch;
    bool ignore_case = false;
    FIELDS(ignore_case)
  };
  explicit ExactMatch(const HParams& p) : p_(p) {}

  // exact_match, of the first sample; any_match, of any sample; examples.
  std::vector<std::string> names() const override {
    return {"exact_match", "any_match", "examples"};
  }

  void add(const DecodedExample& example) override {
    const std::string wanted = normalised(example.reference);
    ++examples_;
    const auto matches = [&](const DecodedSample& sample) {
      return normalised(sample.text) == wanted;
    };
    const std::vector<DecodedSample>& samples = example.samples;
    first_matches_ += !samples.empty() && matches(samples.front()) ? 1 : 0;
    any_matches_ += std::any_of(samples.begin(), samples.end(), matches) ? 1 : 0;
  }

  std::map<std::string, double> values() const override {
    if (examples_ == 0) fail("no example was decoded");
    const auto part = [&](int64_t count) {
      return static_cast<double>(count) / static_cast<double>(examples_);
    };
    return {{"exact_match", part(first_matches_)},
            {"any_match", part(any_matches_)},
            {"examples", static_cast<double>(examples_)}};
  }

 private:
  std::string normalised(const std::string& text) const {
    constexpr const char* kSpace = " \t\r\n";
    const size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string::npos) return "";
    std::string trimmed = text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
    if (p_.ignore_case)
      for (char& c : trimmed)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return trimmed;
  }

  HParams p_;
  int64_t examples_ = 0;
  int64_t first_matches_ = 0;
  int64_t any_matches_ = 0;
};

REGISTER_TEMPLATE(PredictMetric, ExactMatch);

// Accuracy of multiple choice: the model's answer is the one that it finds most likely. The rows of
// a question are consecutive in the dataset, the correct answer first; only labels of the answer
// have weight. A tie with the correct answer counts as wrong. A question with rows beyond the end
// of the evaluation is not counted.
class MultipleChoice final : public ScoreMetric {
 public:
  struct HParams {
    using Instance = MultipleChoice;
    int64_t num_choices = 4;
    FIELDS(About(num_choices, {.min = 2}))
  };
  explicit MultipleChoice(const HParams& p) : p_(p) {}

  // accuracy; normalised_accuracy, by likelihood per label, for answers of different lengths;
  // questions.
  std::vector<std::string> names() const override {
    return {"accuracy", "normalised_accuracy", "questions"};
  }

  void add(const ScoredExample& example) override {
    if (const auto found = example.row.find("segment_ids"); found != example.row.end()) {
      const auto* segments = found->second.data<int32_t>();
      const int32_t last = *std::max_element(segments, segments + found->second.shape.at(0));
      if (last > 1)
        fail("row {} has {} documents, but each answer must be a row; set packed=false",
             example.number, last);
    }
    const ExampleScore& score = example.scores.at("log_pplx");
    questions_[example.number / p_.num_choices][example.number % p_.num_choices] = {
        score.sum, score.sum / score.weight};
  }

  std::map<std::string, double> values() const override {
    int64_t questions = 0, right = 0, right_by_label = 0;
    for (const auto& [question, answers] : questions_) {
      if (static_cast<int64_t>(answers.size()) < p_.num_choices) continue;
      const Answer& best = answers.at(0);
      const auto is_right = [&](double Answer::*nats) {
        return std::all_of(std::next(answers.begin()), answers.end(),
                           [&](const auto& other) { return best.*nats < other.second.*nats; });
      };
      ++questions;
      right += is_right(&Answer::nats) ? 1 : 0;
      right_by_label += is_right(&Answer::nats_per_label) ? 1 : 0;
    }
    if (questions == 0)
      fail("the dataset has no question with {} answers (num_choices)", p_.num_choices);
    const auto part = [&](int64_t count) {
      return static_cast<double>(count) / static_cast<double>(questions);
    };
    return {{"accuracy", part(right)},
            {"normalised_accuracy", part(right_by_label)},
            {"questions", static_cast<double>(questions)}};
  }

 private:
  struct Answer {
    double nats = 0.0;
    double nats_per_label = 0.0;
  };
  HParams p_;
  std::map<int64_t, std::map<int64_t, Answer>> questions_;
};

REGISTER_TEMPLATE(ScoreMetric, MultipleChoice);

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
  FIELDS(About(question_length, kSize), About(num_letters, {.min = 2}),
         About(num_choices, {.min = 2}), About(model_dims, kSize),
         About(num_train_steps, kNotNegative), About(eval_interval_steps, kNotNegative))

  void shrink() override {
    Experiment::shrink();
    question_length = 2;
    num_letters = 5;
    model_dims = 16;
    num_train_steps = kSmokeSteps;
  }

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
