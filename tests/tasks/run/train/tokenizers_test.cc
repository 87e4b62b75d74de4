// SPDX-License-Identifier: Apache-2.0
// Training refuses tokens of another tokenizer than the model's: that of its training input, of its
// run, or of the weights that it takes.
#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "layers/models/language_model.h"
#include "tasks/run/directory/run_config.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Catch::Contains;

const std::string kNoError = "no error";  // The result of error_of().
const std::string kTokenizers = TESSERA_SOURCE_DIR "/tests/golden/trained_tokenizers/";

class TokenizedRuns {
 public:
  TokenizedRuns() {
    for (const std::string name : {"cl100k", "gpt2"}) {
      FlatTokensWriter writer(file(name), *make_tokenizer(kTokenizers + name + ".json"));
      writer.begin_split("train");
      for (int i = 0; i < 40; ++i) writer.add_document(std::vector<int32_t>(20, i));
      writer.finish();
    }
  }

  std::string train(const std::string& run, const std::string& tokens, const std::string& eval,
                    int64_t steps, const InitFrom& init_from = {}) {
    ExperimentConfig config = tiny_config(steps);
    task_of(config).train.init_from = init_from;
    auto& model = task_of(config).model.as<LanguageModel::HParams>();
    model.lm_tpl.as<TransformerLm::HParams>().vocab_size = 440;
    FlatTokensInput::HParams input{
        .path = file(tokens).string(), .global_batch_size = 4, .seq_len = 16};
    config.input = input;
    input.path = file(eval).string();
    input.repeat = false;
    config.eval_inputs = {{"validation", input}};
    RunWith options;
    options.allow_config_change = true;
    return error_of([&] { run_tiny(config, directory_ / run, options); });
  }
  std::filesystem::path file(const std::string& name) const { return directory_ / (name + ".h5"); }
  std::filesystem::path folder(const std::string& run) const { return directory_ / run; }

 private:
  TemporaryDirectory directory_;
};

TEST_CASE("inputs of one experiment have one tokenizer") {
  TokenizedRuns runs;
  REQUIRE(runs.train("same", "gpt2", "gpt2", 1) == kNoError);
  const std::string message = runs.train("two", "gpt2", "cl100k", 1);
  REQUIRE_THAT(message, Catch::StartsWith("eval_inputs.validation: its tokenizer is '") &&
                            Contains("cl100k.json' (bpe-") && Contains("), not '") &&
                            Contains("gpt2.json' (bpe-") &&
                            Catch::EndsWith(") of the model; build its tokens with that"));
  REQUIRE(message.find('\n') == std::string::npos);
}

TEST_CASE("a run keeps the tokenizer of its model") {
  TokenizedRuns runs;
  REQUIRE(runs.train("run", "gpt2", "gpt2", 1) == kNoError);
  const std::string message = runs.train("run", "cl100k", "cl100k", 2);
  const std::string kept = (runs.folder("run") / "tokenizer").string();
  REQUIRE_THAT(message, Catch::StartsWith("input: its tokenizer is '") &&
                            Contains("(kept in " + kept + "; remove that file"));
  REQUIRE_THAT(read_run_tokenizer(runs.folder("run"))->name(), Contains("gpt2.json"));
  REQUIRE(runs.train("run", "gpt2", "gpt2", 2) == kNoError);
  // Without the file only the position in other data is refused.
  std::filesystem::remove(kept);
  REQUIRE_THAT(runs.train("run", "cl100k", "cl100k", 3), !Contains("its tokenizer is"));
}

TEST_CASE("a run without a checkpoint may get another tokenizer") {
  TokenizedRuns runs;
  std::filesystem::create_directories(runs.folder("run"));
  write_run_tokenizer(runs.folder("run"), *make_tokenizer("bytes"));
  REQUIRE(runs.train("run", "gpt2", "gpt2", 1) == kNoError);
}

TEST_CASE("weights with a row for each token are taken with their tokenizer only") {
  TokenizedRuns runs;
  REQUIRE(runs.train("first", "gpt2", "gpt2", 1) == kNoError);
  InitFrom from{.directory = runs.folder("first").string()};
  REQUIRE(runs.train("same", "gpt2", "gpt2", 1, from) == kNoError);
  REQUIRE_THAT(runs.train("other", "cl100k", "cl100k", 1, from),
               Contains("of the weights that task.train.init_from takes; build its tokens with "
                        "that, or leave out lm.") &&
                   Contains("(ignore_rules)"));
  from.ignore_rules = {".*softmax.*"};
  REQUIRE(runs.train("layers", "cl100k", "cl100k", 1, from) == kNoError);
}

}  // namespace
}  // namespace tessera
