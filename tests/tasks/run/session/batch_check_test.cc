// SPDX-License-Identifier: Apache-2.0
// Faulty batches of a user's input: ids and labels without a row in the model end a run before the
// step, and an evaluation set without labels ends it before the first step.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/synthetic_input.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/models/language_model.h"
#include "tasks/run/session/step_checks.h"
#include "tests/support/catch.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/run_with.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Catch::Contains;

}  // namespace

// A synthetic input in which one element of an array of batch 1 is changed: row 2, position 5.
class OddInput final : public BaseInput {
 public:
  struct HParams {
    using Instance = OddInput;
    static constexpr std::string_view kName = "OddInput";
    std::string array = "ids";
    int64_t value = 0;
    double weight = 1.0;  // Weight of this element, or with `weighs_all` of every label.
    bool weighs_all = false;
    int64_t num_batches = -1;
    FIELDS(array, value, weight, weighs_all, num_batches)
  };
  static constexpr int64_t kSeqLen = 16, kRow = 2, kPosition = 5;

  explicit OddInput(const HParams& p)
      : p_(p),
        input_({.task = SyntheticTask::kCopy,
                .global_batch_size = 8,
                .seq_len = kSeqLen,
                .num_letters = 8,
                .distance = 2,
                .num_batches = p.num_batches}) {}
  const std::string& name() const override { return input_.name(); }
  int64_t global_batch_size() const override { return input_.global_batch_size(); }
  void attach(const Infeed& infeed) override { input_.attach(infeed); }
  int64_t vocab_size() const override { return input_.vocab_size(); }
  bool repeats() const override { return p_.num_batches < 0; }
  Batch specification() const override { return input_.specification(); }
  std::optional<Batch> get_next() override {
    std::optional<Batch> batch = input_.get_next();
    if (batch && (input_.state().position == 2 || p_.weighs_all)) change(&*batch);
    return batch;
  }
  std::optional<Batch> peek() override { return std::nullopt; }
  void reset() override { input_.reset(); }
  InputState state() const override { return input_.state(); }
  void restore(const InputState& state) override { input_.restore(state); }

 private:
  void change(Batch* batch) const {
    const auto weight = static_cast<float>(p_.weight);
    float* const weights = batch->at("weights").data<float>();
    if (p_.weighs_all) return (void)std::fill_n(weights, 8 * kSeqLen, weight);
    constexpr int64_t kAt = kRow * kSeqLen + kPosition;
    batch->at(p_.array).data<int32_t>()[kAt] = static_cast<int32_t>(p_.value);
    weights[kAt] = weight;
  }

  HParams p_;
  SyntheticInput input_;
};
const TemplateRegistrar<BaseInput, OddInput> kRegister;

namespace {

std::string train_on(const OddInput::HParams& input, ExperimentConfig config = tiny_config(3)) {
  const TemporaryDirectory directory;
  config.input = input;
  return error_of([&] { run_tiny(config, directory.path()); });
}

TEST_CASE("an id or a label outside the model's tables ends a run before its step") {
  for (const char* array : {"ids", "labels"}) {
    for (const int64_t value : {5000, 24, -1, -100}) {
      INFO(array << " " << value);
      const std::string error = train_on({.array = array, .value = value});
      REQUIRE_THAT(error,
                   Contains("batch 1: '" + std::string(array) + "' is " + std::to_string(value) +
                            " in row 2, position 5; expected 0 to " + "23, which 'vocab' in "));
      const bool is_ignored = value == -100 && array == std::string("labels");
      REQUIRE(is_ignored == (error.find("set its element of 'weights' to 0") != std::string::npos));
    }
    REQUIRE(train_on({.array = array, .value = 23}) == "no error");
  }
}

TEST_CASE("lookups are found inside loops, on every mesh and for positions") {
  ExperimentConfig config = tiny_config(3);
  task_of(config).train.num_microbatches = 2;
  config.rules = strategy_rules(Strategy::kFullyShardedTensor);
  REQUIRE_THAT(train_on({.value = 24}, config), Contains("expected 0 to 23"));
  REQUIRE_THAT(train_on({.array = "labels", .value = 24}, config), Contains("expected 0 to 23"));

  auto& lm = task_of(config).model.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
  lm.position_emb_tpl = TrainablePositionalEmbedding::HParams{.max_seq_length = 20};
  REQUIRE(train_on({.array = "segment_pos", .value = 15}, config) == "no error");
  REQUIRE_THAT(train_on({.array = "segment_pos", .value = 16}, config),
               Contains("'segment_pos' is 16") && Contains("expected 0 to 15, which 'positions'"));
}

TEST_CASE("a label of weight 0 may be -100 and changes no loss") {
  const auto losses = [](int64_t label) {
    const TemporaryDirectory directory;
    ExperimentConfig config = tiny_config(3);
    config.input = OddInput::HParams{.array = "labels", .value = label, .weight = 0.0};
    REQUIRE(run_tiny(config, directory.path()) == 0);
    return values_of(directory.path(), "loss");
  };
  REQUIRE(losses(-100) == losses(3));
}

TEST_CASE("evaluation and decoding check ids too") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(1);
  config.eval_inputs = {{"odd", OddInput::HParams{.value = 77, .num_batches = 2}}};
  REQUIRE_THAT(
      error_of([&] { run_tiny(config, directory / "eval"); }),
      Contains("batch 1: 'ids' is 77 in row 2, position 5") && Contains("in eval_inputs.odd"));
}

TEST_CASE("an evaluation set without labels is found before the first step") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config(1);
  const auto error_with = [&](const Template<BaseInput>& input) {
    config.eval_inputs = {{"odd", input}};
    return error_of([&] { run_tiny(config, directory / "run", {{.dry_run = true}}); });
  };
  const char* kNothing = "eval dataset 'odd' has nothing to score: no label has a weight above 0";
  OddInput::HParams weighed{.weight = 0.0, .weighs_all = true, .num_batches = 3};
  REQUIRE_THAT(error_with(weighed), Contains(kNothing));
  weighed.weight = 0.5;
  REQUIRE(error_with(weighed) == "no error");

  const std::filesystem::path text = directory / "a.txt";
  write_file_atomically(text, "One document, which is not in the split.");
  const StreamingTextInput::HParams empty{.path = text.string(),
                                          .split = StreamSplit::kValidation,
                                          .validation_fraction = 1e-6,
                                          .global_batch_size = 8,
                                          .seq_len = 16,
                                          .repeat = false};
  REQUIRE_THAT(error_with(empty), Contains(kNothing));
}

}  // namespace
}  // namespace tessera
