// SPDX-License-Identifier: Apache-2.0
// Masked language models: Pax's settings, the loss of masked tokens only, and equal steps on any
// mesh and after a resume.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "inputs/base_input.h"
#include "inputs/masked_input.h"
#include "inputs/span_corruption_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer_lm.h"
#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tasks/task/single_task.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/metrics_lines.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

ExperimentConfig config_of(const std::string& name, const std::vector<std::string>& settings = {}) {
  return configure(find_experiment(name, plugin_path({})), settings).config;
}

const std::vector<std::string> kNarrow = {
    "num_layers=2",      "model_dims=32",        "dims_per_head=8",    "hidden_dims=64",
    "vocab_size=64",     "seq_len=32",           "data=synthetic",     "global_batch_size=8",
    "warmup_steps=2",    "decay_end=40",         "learning_rate=0.01", "compute_dtype=f32",
    "num_train_steps=6", "eval_interval_steps=0"};

// Narrow bert.SpmdL4H128, trained in `name` with these settings and arguments.
void train(const TemporaryDirectory& directory, const std::string& name,
           const std::vector<std::string>& settings, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"--exp=bert.SpmdL4H128",
                                  "--job_log_dir=" + (directory / name).string()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<std::string> sets = kNarrow;
  sets.insert(sets.end(), settings.begin(), settings.end());
  successful(run_program(directory.path(), "runexp", all, sets));
}

TEST_CASE("bert's recipes have Pax's settings") {
  const TemporaryDirectory directory;
  const auto described = [&](const std::string& name) {
    return successful(run_program(directory.path(), "runexp", {"--exp=bert." + name, "--describe"}))
        .output;
  };
  REQUIRE_THAT(
      described("AdamL4H128"),
      Contains("optimizer_tpl = Adam") && Contains("optimizer_tpl.learning_rate = 0.001") &&
          Contains("schedule_tpl.decay_end = 300000") && Contains("attention_tpl.causal = false") &&
          Contains("attention_tpl.combine_qkv = false") &&
          Contains("stacked_transformer_tpl = StackedTransformer"));
  REQUIRE_THAT(described("SpmdL33H12kBiggerBatch"),
               Contains("optimizer_tpl = Adafactor") && Contains("weight_decay = 0.01") &&
                   Contains("attention_tpl.causal = false") &&
                   Contains("attention_tpl.combine_qkv = true") &&
                   Contains("loss.label_smoothing = 0.1") && Contains("loss.soft_cap = 30.0") &&
                   Contains("schedule_tpl.decay_end = 100000") &&
                   Contains("remat_policy = \"save_dot_with_no_batch_dims\"") &&
                   Contains("input = MaskedInput") && Contains("input.chosen_rate = 0.15"));
}

TEST_CASE("an imported masked model is trained to predict masked tokens") {
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/tests/golden/hugging_face/roberta";
  std::vector<std::string> settings = {"path=" + path, "seq_len=21"};
  REQUIRE(config_of("hf.Pretrained", settings).input.holds<StreamingTextInput::HParams>());
  settings.emplace_back("text_path=text.jsonl");
  REQUIRE_THROWS_WITH(config_of("hf.Pretrained", settings),
                      Contains("roberta is a masked model") && Contains("--set mask_id=N"));
  settings.emplace_back("mask_id=3");
  const ExperimentConfig config = config_of("hf.Pretrained", settings);
  const auto& input = config.input.as<MaskedInput::HParams>();
  REQUIRE(input.mask_id.get() == 3);
  REQUIRE(input.input_tpl.as<StreamingTextInput::HParams>().labels == Labels::kShiftRight);
  // Positions begin at row 3 of 24.
  settings.emplace_back("seq_len=22");
  REQUIRE_THROWS_WITH(config_of("hf.Pretrained", settings),
                      Contains("seq_len=22 exceeds the 21 positions of "));
}

// Import and export trace a step, whose batch must have what the encoder reads.
TEST_CASE("an imported model with an encoder is trained on corrupted spans") {
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/tests/golden/hugging_face/t5";
  std::vector<std::string> settings = {"path=" + path};
  REQUIRE(config_of("hf.Pretrained", settings).input.holds<SpanCorruptionInput::HParams>());
  settings.emplace_back("text_path=text.jsonl");
  REQUIRE_THROWS_WITH(config_of("hf.Pretrained", settings),
                      Contains("t5 has an encoder") && Contains("--set first_sentinel_id=N"));
  settings.emplace_back("first_sentinel_id=20");
  const ExperimentConfig config = config_of("hf.Pretrained", settings);
  REQUIRE(config.input.as<SpanCorruptionInput::HParams>().first_sentinel_id.get() == 20);
}

// transformers 5 calls the head of every T5 tied.
TEST_CASE("the head of an imported T5 is tied if its files have none") {
  const TemporaryDirectory directory;
  const std::string goldens = std::string(TESSERA_SOURCE_DIR) + "/tests/golden/hugging_face/";
  for (const std::string name : {"t5", "t5_v1_1"}) {
    std::filesystem::copy(goldens + name, directory / name);
    std::string text = read_file(directory / name / "config.json");
    for (const std::string flag : {"tie_word_embeddings", "scale_decoder_outputs"})
      text.replace(text.find(flag), flag.size(), "_" + flag);
    text.insert(1, R"("tie_word_embeddings": true, "scale_decoder_outputs": false, )");
    write_bytes(directory / name / "config.json", text);
    const ExperimentConfig config =
        config_of("hf.Pretrained", {"path=" + (directory / name).string()});
    const auto& model = config.task.as<SingleTask::HParams>().model.as<LanguageModel::HParams>();
    REQUIRE(model.lm_tpl.as<TransformerLm::HParams>().separate_embedding_tpl.has() ==
            (name == "t5_v1_1"));
  }
}

TEST_CASE("bert's loss is that of the chosen tokens") {
  const TemporaryDirectory directory;
  train(directory, "run", {"eval_interval_steps=6"},
        {"--devices=1", "--set=ici_mesh_shape=[1,1,1]"});
  const auto input =
      config_of("bert.SpmdL4H128", kNarrow).eval_inputs.at("validation").instantiate();
  input->attach({});
  double chosen = 0.0, tokens = 0.0;
  while (const std::optional<Batch> batch = input->get_next()) {
    const HostArray& weights = batch->at("weights");
    for (int64_t i = 0; i < weights.shape[0] * weights.shape[1]; ++i, ++tokens)
      chosen += weights.data<float>()[i];
  }
  REQUIRE(tokens == 8 * 8 * 32);
  REQUIRE(chosen > 0.1 * tokens);
  REQUIRE(chosen < 0.2 * tokens);
  REQUIRE(numbers_of(directory / "run", "eval/validation/weight").back() == chosen);
}

TEST_CASE("bert learns to fill in masked tokens of sequences that repeat") {
  const TemporaryDirectory directory;
  train(directory, "run",
        {"num_train_steps=40", "input.input_tpl.task=copy", "input.input_tpl.distance=2"},
        {"--devices=1", "--set=ici_mesh_shape=[1,1,1]"});
  const std::vector<double> losses = numbers_of(directory / "run", "loss");
  REQUIRE(losses.size() == 40);
  REQUIRE(losses.front() > 3.0);  // ln 64 = 4.2; the initial logits are not zero.
  REQUIRE(losses.back() < 0.7 * losses.front());
}

TEST_CASE("bert takes the same steps on one device, on four by two, and after a resume") {
  const TemporaryDirectory directory;
  train(directory, "one", {}, {"--devices=1", "--set=ici_mesh_shape=[1,1,1]"});
  train(directory, "eight", {}, {"--devices=8"});
  const std::vector<double> one = numbers_of(directory / "one", "loss");
  const std::vector<double> eight = numbers_of(directory / "eight", "loss");
  REQUIRE(one.size() == 6);
  REQUIRE(eight.size() == 6);
  // Sums in another order: f32 rounding, amplified by a few steps at a high learning rate.
  for (size_t i = 0; i < one.size(); ++i) REQUIRE(eight[i] == Approx(one[i]).epsilon(1e-3));

  train(directory, "resumed", {"num_train_steps=3"},
        {"--devices=1", "--set=ici_mesh_shape=[1,1,1]"});
  train(directory, "resumed", {},
        {"--devices=1", "--set=ici_mesh_shape=[1,1,1]", "--allow_config_change"});
  REQUIRE(losses_of(directory / "resumed") == losses_of(directory / "one"));
}

TEST_CASE("bert without data prints the commands that fetch Wikipedia") {
  const TemporaryDirectory directory;
  const Ended got =
      with_code(2, run_program(directory.path(), "runexp", {"--exp=bert.AdamL4H128"}));
  REQUIRE_THAT(got.output, Contains("data/wikipedia.h5 does not exist (flat_tokens_path)") &&
                               Contains("wikimedia/wikipedia") &&
                               Contains("\n  ./flat_tokens build --output=data/wikipedia.h5 "));
}

}  // namespace
}  // namespace tessera
