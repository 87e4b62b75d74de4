// SPDX-License-Identifier: Apache-2.0
// User-defined models around a TransformerLm: the TransformerLm is exported, whatever the loss, and
// a note before training lists what an export leaves out.
#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "core/ops/elementwise.h"
#include "layers/models/classification_model.h"
#include "layers/models/language_model.h"
#include "tasks/interop/hf_model.h"
#include "tasks/interop/hf_weights.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trial.h"
#include "tests/tasks/interop/hf_run.h"

namespace tessera {

// A loss of its own, and with `head` a weight of its own.
class OwnModel final : public BaseModel {
 public:
  struct HParams {
    using Instance = OwnModel;
    static constexpr std::string_view kName = "OwnModel";
    Template<TransformerLm> trunk_tpl = TransformerLm::HParams{};
    bool head = false;
    FIELDS(trunk_tpl, head)
  };
  explicit OwnModel(const HParams& p) : trunk_(child("trunk", p.trunk_tpl)) {
    if (p.head) head_ = weight("head", {}, ones());
  }

 private:
  ModelOutput fprop(const Features& features) const override {
    CrossEntropy scores = trunk_->loss(features);
    scores.loss = square(scores.loss);
    if (head_) scores.loss = scores.loss * param(*head_);
    return weighted_output(scores, features.find("weights"));
  }
  Tensor fprop_logits(const Features& features) const override { return trunk_->logits(features); }

  ChildLayer<TransformerLm> trunk_;
  std::optional<Weight> head_;
};

const TemplateRegistrar<BaseModel, OwnModel> kRegister;

namespace {

using Catch::Contains;

ExperimentConfig own_experiment(const std::string& golden, bool head) {
  ExperimentConfig config = hf_experiment(golden);
  const TransformerLm::HParams trunk = lm_of(config);
  config.task.as<SingleTask::HParams>().model = OwnModel::HParams{.trunk_tpl = trunk, .head = head};
  return config;
}

TEST_CASE("a model with a loss of its own is exported as the TransformerLm that it contains") {
  for (const std::string name : {"gpt2", "llama"}) {
    INFO(name);
    const TemporaryDirectory directory;
    const ExperimentConfig config = own_experiment(name, false);
    REQUIRE(export_note(config, NoteLength::kWhole) == "");
    import_hf(config, hf_golden(name), directory / "run");
    export_hf(config, directory / "run", directory / "out");
    const SafetensorsModel before(hf_golden(name)), after(directory / "out");
    REQUIRE(before.names() == after.names());
    std::vector<float> a(8), b(8);
    for (const std::string& tensor : before.names()) {
      before.read(tensor, 0, a);
      after.read(tensor, 0, b);
      REQUIRE(a == b);
    }
  }
}

TEST_CASE("weights of a head of one's own are left out of an export, which is said before") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = own_experiment("llama", true);
  for (const NoteLength length : {NoteLength::kWhole, NoteLength::kBrief})
    REQUIRE(export_note(config, length) ==
            "note: an export to Hugging Face leaves out head f32[\"\"]");
  REQUIRE_THAT(error_of([&] { import_hf(config, hf_golden("llama"), directory / "imported"); }),
               Contains("has no values for head f32[\"\"]; import with --exp=hf.Pretrained"));
  train_hf(config, directory / "run", 1);
  export_hf(config, directory / "run", directory / "out");
  REQUIRE(SafetensorsModel(directory / "out").names() ==
          SafetensorsModel(hf_golden("llama")).names());
}

void set_mtp(ExperimentConfig& config) {
  lm_of(config).mtp_tpl = MultiTokenPrediction::HParams{.block_tpl = block_of(config)};
}

void set_teacher(ExperimentConfig& config) {
  const TransformerLm::HParams lm = lm_of(config);
  config.task.as<SingleTask::HParams>().model.as<LanguageModel::HParams>().teacher_tpl = lm;
}

TEST_CASE("weights that only training reads are left out of an export, which is said before") {
  const ExperimentConfig plain = hf_experiment("llama");
  for (const auto& [set, weights] : {std::pair(&set_mtp, "the 14 weights of lm.mtp"),
                                     {&set_teacher, "the 21 weights of teacher"}}) {
    INFO(weights);
    const TemporaryDirectory directory;
    ExperimentConfig config = plain;
    set(config);
    REQUIRE(export_note(config, NoteLength::kBrief) ==
            fmt::format("note: an export to Hugging Face leaves out {}", weights));
    REQUIRE_THAT(error_of([&] { import_hf(config, hf_golden("llama"), directory / "imported"); }),
                 Contains(fmt::format("has no values for {}; import with --exp=hf.Pretrained, then "
                                      "set task.train.init_from",
                                      weights)));
    train_hf(config, directory / "run", 1);
    export_hf(config, directory / "run", directory / "out");
    REQUIRE(SafetensorsModel(directory / "out").names() ==
            SafetensorsModel(hf_golden("llama")).names());
    // Decoding does not read them.
    import_hf(plain, directory / "out", directory / "again");
    const std::vector<std::vector<int32_t>> rows = {{1, 5, 2, 9}, {3, 3, 7, 4}};
    REQUIRE(logits_of(config, directory / "run", rows) ==
            logits_of(plain, directory / "again", rows));
    REQUIRE(decoded(config, directory / "run", rows, 4) ==
            decoded(plain, directory / "again", rows, 4));
  }
}

TEST_CASE("what cannot be exported is said briefly at the start, and not of other models") {
  ExperimentConfig config = own_experiment("llama", false);
  auto& trunk = config.task.as<SingleTask::HParams>()
                    .model.as<OwnModel::HParams>()
                    .trunk_tpl.as<TransformerLm::HParams>();
  trunk.softmax_tpl.as<FullSoftmax::HParams>().loss.soft_cap = 30.0;
  trunk.softmax_tpl.as<FullSoftmax::HParams>().use_bias = true;
  const std::string whole = export_note(config, NoteLength::kWhole);
  REQUIRE_THAT(whole, Contains("note: cannot be exported to Hugging Face: this model is of no "
                               "family of transformers that is known (") &&
                          Contains("softmax_tpl.use_bias is true, expected false") &&
                          Contains("softmax_tpl.loss.soft_cap is 30.0, expected 0.0"));
  const std::string brief = export_note(config, NoteLength::kBrief);
  REQUIRE_THAT(brief,
               Contains("use_bias is true, expected false; … (--describe has all reasons)") &&
                   !Contains("soft_cap"));
  config.task.as<SingleTask::HParams>().model = ClassificationModel::HParams{
      .network_tpl = Mlp::HParams{.input_dims = 3, .hidden_dims = {4}},
      .softmax_tpl = FullSoftmax::HParams{.vocab_size = 2, .model_dims = 4}};
  REQUIRE(export_note(config, NoteLength::kBrief) == "");
  REQUIRE_THAT(export_note(config, NoteLength::kWhole), Contains("the model has no TransformerLm"));
}

TEST_CASE("a run whose configuration cannot be exported is exported with the settings advised") {
  const TemporaryDirectory directory;
  ExperimentConfig config = hf_experiment("llama");
  auto& loss = lm_of(config).softmax_tpl.as<FullSoftmax::HParams>().loss;
  loss.soft_cap = 30.0;
  train_hf(config, directory / "run", 1);
  const auto message = [&] {
    return error_of([&] { export_hf(config, directory / "run", directory / "out"); });
  };
  REQUIRE_THAT(message(), Contains("softmax_tpl.loss.soft_cap is 30.0, expected 0.0"));
  lm_of(config).softmax_tpl.as<FullSoftmax::HParams>().loss.soft_cap = 0.0;
  REQUIRE(message() == "no error");
}

}  // namespace
}  // namespace tessera
