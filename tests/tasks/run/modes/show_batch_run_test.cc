// SPDX-License-Identifier: Apache-2.0
// --mode=show_batch: the rows that each host of a mesh would read, with texts, and wrong choices.
#include "inputs/flat_tokens/text_input.h"
#include "inputs/mixture/mixture_input.h"
#include "tasks/run/modes/modes.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

using Catch::Contains;

// A batch of the input as it would be shown, with files in `directory`.
std::string shown(const ExperimentConfig& config, const TemporaryDirectory& directory,
                  const ShowBatchOptions& options, int64_t devices = 1) {
  const RunSetting setting{
      .experiment = "tests.Tiny", .devices = devices, .input_directory = directory.path()};
  const std::vector<Device*> none;
  ProcessGroup alone;
  return batch_text({config, setting, none, alone}, options);
}

ExperimentConfig text_config(const TemporaryDirectory& directory) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += fmt::format("line {}\n", i);
  write_bytes(directory / "a.txt", text);
  ExperimentConfig config = tiny_config();
  config.input = TextInput::HParams{.path = (directory / "a.txt").string(),
                                    .global_batch_size = 4,
                                    .seq_len = 8,
                                    .shuffle = false};
  return config;
}

TEST_CASE("a shown batch has its ids, texts, masks and positions") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = text_config(directory);
  const std::string text = shown(config, directory, {.rows = 1, .length = 3});
  REQUIRE_THAT(text, Contains("train, step 0, host 0 of 1: 4 of 4 rows\n") &&
                         Contains("ids i32[4 8]") &&
                         Contains("\nrow 0 of the global batch: eval_sample_weights 1, ") &&
                         Contains("label_bytes 8") && Contains("source train"));
  REQUIRE_THAT(text, Contains("'l'   109     106        1") && Contains("'i'   106     111"));
  REQUIRE_THAT(shown(config, directory, {.step = 1, .rows = 1, .length = 9}),
               Contains("train, step 1") && Contains("'\\n'"));
  REQUIRE_THAT(shown(config, directory, {.step = 100000}),
               Contains("train, step 100000"));  // Training data repeat.
  REQUIRE_THAT(shown(config, directory, {.dataset = "validation"}), Contains("validation, step 0"));
}

TEST_CASE("each host of a mesh is shown the rows of its devices") {
  const TemporaryDirectory directory;
  ExperimentConfig config = text_config(directory);
  const auto rows = [&](int64_t host, int64_t hosts, int64_t devices) {
    const std::string text =
        shown(config, directory, {.host = host, .hosts = hosts, .rows = 9, .length = 1}, devices);
    std::vector<std::string> numbers;
    for (size_t at = 0; (at = text.find("\nrow ", at)) != std::string::npos; ++at)
      numbers.push_back(text.substr(at + 5, 1));
    return numbers;
  };
  using Numbers = std::vector<std::string>;
  REQUIRE(rows(0, 1, 1) == Numbers{"0", "1", "2", "3"});
  REQUIRE(rows(1, 2, 1) == Numbers{"2", "3"});
  REQUIRE(rows(1, 2, 2) == Numbers{"2", "3"});
  REQUIRE(rows(3, 4, 1) == Numbers{"3"});
  config.mesh.ici_mesh_shape = {1, 2, 2};  // Hosts 0 and 1 split the tensors of the same rows.
  REQUIRE(rows(1, 4, 1) == Numbers{"0", "1"});
  REQUIRE(rows(2, 4, 1) == Numbers{"2", "3"});
  REQUIRE_THROWS_WITH(rows(0, 3, 1), Contains("--hosts=3: a mesh of 4 devices is not divisible"));
}

TEST_CASE("rows of a mixture name their source, and phases cut rows") {
  const TemporaryDirectory directory;
  ExperimentConfig config = tiny_config();
  const Template<BaseInput> source = config.input;
  config.input = MixtureInput::HParams{.sources = {{"letters", source}, {"others", source}},
                                       .weights = {{"letters", 0.0}, {"others", 1.0}},
                                       .global_batch_size = 8,
                                       .seq_len = 16};
  REQUIRE_THAT(shown(config, directory, {}), Contains("source others"));
  config.input = source;
  task_of(config).train.phases = {{.start_step = 0, .seq_len = 4}, {.start_step = 2}};
  REQUIRE_THAT(shown(config, directory, {.step = 1}), Contains("ids i32[") && Contains(" 4], "));
  REQUIRE_THAT(shown(config, directory, {.step = 2}), Contains("ids i32[8 16]"));
}

TEST_CASE("a step, a dataset or a host that does not exist is an error") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = text_config(directory);
  REQUIRE_THROWS_WITH(shown(config, directory, {.step = 2, .dataset = "validation"}),
                      Contains("--step=2: the input ends after 2 batches"));
  REQUIRE_THROWS_WITH(shown(config, directory, {.dataset = "validatoin"}),
                      Contains("tests.Tiny has no such dataset; expected validation") &&
                          Contains("did you mean 'validation'?"));
}

}  // namespace
}  // namespace tessera
