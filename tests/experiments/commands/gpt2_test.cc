// SPDX-License-Identifier: Apache-2.0
// GPT-2 as Levanter trains it: schedule, weight decay and stability options.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "layers/models/language_model.h"
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
    "num_layers=3",        "model_dims=32",  "num_heads=4",       "vocab_size=64",    "seq_len=32",
    "global_batch_size=8", "data=synthetic", "compute_dtype=f32", "num_train_steps=6"};

// Narrow gpt2.Small with these settings, trained in `name` with these arguments.
void train(const TemporaryDirectory& directory, const std::string& name,
           std::vector<std::string> settings, const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> all = {"--exp=gpt2.Small",
                                  "--job_log_dir=" + (directory / name).string()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  settings.insert(settings.begin(), kNarrow.begin(), kNarrow.end());
  successful(run_program(directory.path(), "runexp", all, settings));
}

TEST_CASE("gpt2's learning rate rises over one per cent of the steps and falls to a tenth") {
  const auto task = config_of("gpt2.Small").task.instantiate();
  const BaseOptimizer& optimizer = task->learner().optimizer();
  const auto rate = [&](int64_t step) {
    return optimizer.learning_rate(step, task->train().num_train_steps);
  };
  REQUIRE(rate(2000) == Approx(3e-4));
  REQUIRE(rate(4000) == Approx(6e-4));
  REQUIRE(rate(202'000) == Approx(0.55 * 6e-4));  // Half-way down the cosine.
  REQUIRE(rate(400'000) == Approx(6e-5));
  const auto fast = config_of("gpt2.SmallFast", {"warmup=50"}).task.instantiate();
  REQUIRE(fast->learner().optimizer().learning_rate(50, 20'000) == Approx(1e-3));
  REQUIRE(fast->learner().optimizer().learning_rate(25, 20'000) == Approx(5e-4));
}

// Levanter's default mask: no biases, norms or embeddings.
TEST_CASE("gpt2 decays the matrices of its blocks and nothing else") {
  const bool is_scaled = GENERATE(true, false);
  std::vector<std::string> settings = kNarrow;
  settings.push_back("use_qk_norm=true");
  settings.push_back(is_scaled ? "scale_attention_by_inverse_layer=true"
                               : "scale_attention_by_inverse_layer=false");
  const auto task = config_of("gpt2.Small", settings).task.instantiate();
  const PathPatterns excluded(task->learner().hparams().weight_decay_exclusion, "exclusion");
  std::set<std::string> decayed;
  for (const Parameter& parameter : task->model().parameters().parameters())
    if (!excluded.match(parameter.path))
      decayed.insert(parameter.path.substr(parameter.path.find("x_layers")));
  const std::string layer = is_scaled ? "x_layers[0]." : "x_layers[].";
  REQUIRE(decayed == std::set<std::string>{layer + "attention.output", layer + "attention.qkv",
                                           layer + "ffn.down", layer + "ffn.up"});
}

TEST_CASE("the scores of gpt2's layer i are divided by i, if that option is on") {
  const auto scale_of = [](const TransformerBlock::HParams& block) {
    return block.attention_tpl.as<DotProductAttention::HParams>().query_scale;
  };
  const auto blocks_of = [](const ExperimentConfig& config) {
    const auto& task = config.task.as<SingleTask::HParams>();
    return task.model.as<LanguageModel::HParams>()
        .lm_tpl.as<TransformerLm::HParams>()
        .stacked_transformer_tpl;
  };
  const Template<SequenceLayer> scaled = blocks_of(config_of("gpt2.Xl"));
  const auto& layers = scaled.as<LayerSequence::HParams>().layers_tpl;
  REQUIRE(layers.size() == 48);
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto& stack = layers[i].as<StackedTransformer::HParams>();
    REQUIRE(scale_of(stack.block_tpl.as<TransformerBlock::HParams>()).get() ==
            Approx(1.0 / (8.0 * static_cast<double>(i + 1))));
  }
  const Template<SequenceLayer> equal =
      blocks_of(config_of("gpt2.Xl", {"scale_attention_by_inverse_layer=false"}));
  const auto& block = equal.as<Repeated::HParams>().block_tpl.as<TransformerBlock::HParams>();
  REQUIRE_FALSE(scale_of(block).has());
}

TEST_CASE("gpt2's stability options change the loss as they should") {
  const TemporaryDirectory directory;
  train(directory, "plain", {});
  const std::vector<std::string> plain = values_of(directory / "plain", "loss");
  REQUIRE(plain.size() == 6);
  const std::vector<std::string> log_pplx = values_of(directory / "plain", "log_pplx");
  for (size_t i = 0; i < plain.size(); ++i)
    REQUIRE(std::stod(plain[i]) == Approx(std::stod(log_pplx[i])));
  REQUIRE(std::stod(plain.front()) == Approx(std::log(64.0)).margin(0.2));
  // The loss has log²Z in addition, which is about ln²64 = 17.3 at the start.
  train(directory, "z_loss", {"z_loss=0.1"});
  const double added = std::stod(values_of(directory / "z_loss", "loss").front()) -
                       std::stod(values_of(directory / "z_loss", "log_pplx").front());
  REQUIRE(added == Approx(1.73).epsilon(0.05));
  for (const std::string option :
       {"use_qk_norm=true", "attention_logit_cap=0.01", "softmax_logit_cap=0.1",
        "norm_policy=post_skip", "scale_attention_by_inverse_layer=false"}) {
    INFO(option);
    train(directory, option, {option});
    REQUIRE(values_of(directory / option, "loss") != plain);
  }
}

TEST_CASE("gpt2 skips steps whose gradient is larger than the limit") {
  const TemporaryDirectory directory;
  std::vector<std::string> settings = kNarrow;
  settings.push_back("skip_step_gradient_norm=0.001");
  const Ended got = with_code(
      1,
      run_program(directory.path(), "runexp",
                  {"--exp=gpt2.Small", "--job_log_dir=" + (directory / "run").string()}, settings));
  REQUIRE_THAT(got.output, Contains("step 1 skipped: ") && Contains("steps were skipped"));
}

TEST_CASE("gpt2 takes the same steps on one device and on four, fully sharded") {
  const TemporaryDirectory directory;
  train(directory, "one", {});
  train(directory, "four", {}, {"--devices=4"});
  const auto one = values_of(directory / "one", "loss");
  const auto four = values_of(directory / "four", "loss");
  REQUIRE(one.size() == 6);
  REQUIRE(four.size() == 6);
  // Sums in another order: f32 rounding.
  for (size_t i = 0; i < one.size(); ++i)
    REQUIRE(std::stod(four[i]) == Approx(std::stod(one[i])).epsilon(1e-4));
}

TEST_CASE("gpt2.Small is exported with the scales of its layers, and --describe says what is not") {
  const TemporaryDirectory directory;
  train(directory, "run", {"num_train_steps=1"});
  std::vector<std::string> settings = kNarrow;
  settings.push_back("num_train_steps=1");
  successful(run_program(
      directory.path(), "runexp",
      {"--exp=gpt2.Small", "--mode=export", "--job_log_dir=" + (directory / "run").string(),
       "--output=" + (directory / "exported").string()},
      settings));
  REQUIRE_THAT(read_bytes(directory / "exported/config.json"),
               Contains("\"scale_attn_by_inverse_layer_idx\": true") &&
                   Contains("\"model_type\": \"gpt2\""));
  const std::string note = "note: cannot be exported to Hugging Face: ";
  const auto described = [&](const std::vector<std::string>& sets) {
    return run_program(directory.path(), "runexp", {"--exp=gpt2.Small", "--describe"}, sets).output;
  };
  const std::string plain = described({});
  REQUIRE_THAT(plain, !Contains(note));
  // Twelve layers that differ in one number take a line for each value of it.
  REQUIRE(std::count(plain.begin(), plain.end(), '\n') < 340);
  REQUIRE_THAT(plain, Contains("layers_tpl[0..11].block_tpl.norm_policy = \"pre\"") &&
                          Contains("layers_tpl[11].block_tpl.attention_tpl.query_scale = "));
  REQUIRE_THAT(
      described({"use_qk_norm=true"}),
      Contains(note) && Contains("attention_tpl.query_norm_tpl is LayerNorm, expected unset"));
  settings.push_back("use_qk_norm=true");
  const Ended start = run_program(
      directory.path(), "runexp",
      {"--exp=gpt2.Small", "--dry_run", "--job_log_dir=" + (directory / "other").string()},
      settings);
  REQUIRE_THAT(start.output,
               Contains("\n" + note) &&
                   Contains("the nearest is gpt2: attention_tpl.query_norm_tpl is LayerNorm"));
}

TEST_CASE("gpt2 without data prints the commands that fetch OpenWebText") {
  const TemporaryDirectory directory;
  const Ended got = with_code(2, run_program(directory.path(), "runexp", {"--exp=gpt2.Large"}));
  REQUIRE_THAT(got.output, Contains("data/openwebtext.h5 does not exist (flat_tokens_path)") &&
                               Contains("Skylion007/openwebtext") &&
                               Contains("\n  ./flat_tokens build --output=data/openwebtext.h5 "
                                        "--tokenizer=data/gpt2/tokenizer.json "));
}

}  // namespace
}  // namespace tessera
