// SPDX-License-Identifier: Apache-2.0
// Runs that stop within an epoch, or within the first batch, on every kind of data: the resumed run
// has the losses of the uninterrupted one, each logged once.
#include <csignal>

#include "core/io/file.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/mixture/mixture_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "layers/models/language_model.h"
#include "tasks/run/shutdown/stop_signal.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/tasks/run/eval/tiny_mixture.h"

namespace tessera {
namespace {

// 36 documents, each a row: an epoch of 4.5 batches.
std::string rows_in(const TemporaryDirectory& directory, const std::string& name) {
  FlatTokensWriter writer(directory / name, *make_tokenizer("bytes"));
  writer.begin_split("train");
  for (int i = 0; i < 36; ++i)
    writer.add_document(std::vector<int32_t>(static_cast<size_t>(5 + i % 7), 40 + i));
  writer.finish();
  return (directory / name).string();
}

ExperimentConfig epochs_of(const Template<BaseInput>& input) {
  ExperimentConfig config = tiny_config(12);
  task_of(config)
      .model.as<LanguageModel::HParams>()
      .lm_tpl.as<TransformerLm::HParams>()
      .vocab_size = 257;
  task_of(config).train.save_interval_steps = 1;
  task_of(config).train.save_max_to_keep = 0;
  config.input = input;
  config.eval_inputs.clear();
  return config;
}

TEST_CASE("a run stopped at 90 % of an epoch or later goes on as without the stop") {
  const TemporaryDirectory directory;
  for (int i = 0; i < 3; ++i)
    write_bytes(directory / fmt::format("text/{}.txt", i),
                std::string(150, static_cast<char>('a' + i)));
  const FlatTokensInput::HParams tokens{
      .path = rows_in(directory, "a.h5"), .global_batch_size = 8, .seq_len = 16, .packed = false};
  FlatTokensInput::HParams eras = tokens;
  eras.shuffle = Shuffle::kEra;
  eras.era_length = 7;
  const StreamingTextInput::HParams stream{.path = (directory / "text").string(),
                                           .split = StreamSplit::kAll,
                                           .global_batch_size = 2,
                                           .seq_len = 16};
  StreamingTextInput::HParams batches = stream;
  batches.global_batch_size = 3;
  const MixtureInput::HParams mixture{.sources = {{"stream", stream}, {"tokens", tokens}},
                                      .weights = {{"stream", 1.0}, {"tokens", 3.0}},
                                      .block_size = 12,
                                      .global_batch_size = 8,
                                      .seq_len = 16};
  int number = 0;
  for (const Template<BaseInput>& input :
       {Template<BaseInput>(tokens), Template<BaseInput>(eras), Template<BaseInput>(batches),
        Template<BaseInput>(mixture)}) {
    const std::filesystem::path run = directory / fmt::format("run{}", number++);
    ExperimentConfig config = epochs_of(input);
    REQUIRE(run_tiny(config, run) == 0);
    const std::vector<std::string> expected = values_of(run, "loss");
    REQUIRE(expected.size() == 12);
    for (const int64_t last : {11, 7, 4}) {
      INFO(input.name() << " from step " << last);
      for (const int64_t step : CheckpointStore(run / "checkpoints").steps())
        if (step > last)
          std::filesystem::remove_all(run / fmt::format("checkpoints/step_{:010}", step));
      RunWith options;
      options.allow_config_change = true;
      task_of(config).train.prefetch_batches = last % 3 + 1;
      REQUIRE(run_tiny(config, run, options) == 0);
      REQUIRE(values_of(run, "loss") == expected);
    }
  }
}

TEST_CASE("a mixture resumes with other weights if that is allowed, and only then") {
  const TemporaryDirectory directory;
  FlatTokensInput::HParams a{
      .path = rows_in(directory, "a.h5"), .global_batch_size = 8, .seq_len = 16, .packed = false};
  FlatTokensInput::HParams b = a;
  a.shuffle = b.shuffle = Shuffle::kNone;
  MixtureInput::HParams mixture{.sources = {{"a", a}, {"b", b}},
                                .weights = {{"a", 1.0}, {"b", 1.0}},
                                .block_size = 8,
                                .global_batch_size = 8,
                                .seq_len = 16};
  ExperimentConfig config = epochs_of(mixture);
  task_of(config).train.num_train_steps = 3;
  REQUIRE(run_tiny(config, directory / "run") == 0);
  const MixtureInput::HParams before = mixture;
  mixture.weights = {{"a", 1.0}, {"b", 0.0}};
  config.input = mixture;
  task_of(config).train.num_train_steps = 5;
  REQUIRE_THROWS_WITH(run_tiny(config, directory / "run"),
                      Catch::Contains("input.weights.b: 1.0 -> 0.0"));
  RunWith options;
  options.allow_config_change = true;
  REQUIRE(run_tiny(config, directory / "run", options) == 0);
  // A run whose weights change at this step by configuration.
  MixtureInput::HParams staged = before;
  staged.stages = {{.step = 3, .weights = mixture.weights}};
  config.input = staged;
  REQUIRE(run_tiny(config, directory / "staged") == 0);
  REQUIRE(values_of(directory / "run", "loss") == values_of(directory / "staged", "loss"));
}

TEST_CASE("a run stopped within its first batches begins there, with the same losses") {
  ExperimentConfig config = tiny_config(5);
  config.input = TinyMixture::HParams{.global_batch_size = 8, .repeat = true};
  config.eval_inputs.clear();
  task_of(config).train.prefetch_batches = 1;  // The second batch is made during the first step.
  const TemporaryDirectory whole;
  REQUIRE(run_tiny(config, whole.path()) == 0);
  const StopSignal listener(StopSignal::Answer::kReports);  // The run's own comes later.
  // After the signal, the store of the input may fail.
  for (const auto [at, fails] :
       {std::pair(1, false), std::pair(2, false), std::pair(3, false), std::pair(2, true)}) {
    INFO("batch " << at << ", fails " << fails);
    const TemporaryDirectory stopped;
    int count = 0;
    TinyMixture::before_batch = [&] {
      if (++count != at) return;
      std::raise(SIGTERM);
      if (fails) throw NoAccess("no answer");
    };
    const int code = run_tiny(config, stopped.path());
    TinyMixture::before_batch = {};
    REQUIRE(code == 0);
    REQUIRE(values_of(stopped.path(), "loss").size() < 5);
    REQUIRE(run_tiny(config, stopped.path()) == 0);
    REQUIRE(values_of(stopped.path(), "loss") == values_of(whole.path(), "loss"));
  }
}

}  // namespace
}  // namespace tessera
