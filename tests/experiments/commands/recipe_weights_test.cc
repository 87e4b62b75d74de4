// SPDX-License-Identifier: Apache-2.0
// The recipes of seqax, of Levanter's GPT-2 and of Pax's BERT: number of weights, batch and mesh
// are those of the originals.
#include <cstdint>
#include <string>
#include <vector>

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "plugins/configure.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

ExperimentConfig config_of(const std::string& name, const std::vector<std::string>& settings = {}) {
  return configure(find_experiment(name, plugin_path({})), settings).config;
}

int64_t weights_of(const ExperimentConfig& config) {
  return config.task.instantiate()->model().parameters().elements();
}

struct Row {
  std::string name;
  int64_t weights = 0;
  int64_t batch = 0;
  std::vector<int64_t> ici, dcn;
};

void check_rows(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    INFO(row.name);
    const ExperimentConfig config = config_of(row.name);
    REQUIRE(weights_of(config) == row.weights);
    REQUIRE(config.input.instantiate()->global_batch_size() == row.batch);
    REQUIRE(config.mesh.ici_mesh_shape == row.ici);
    REQUIRE(config.mesh.dcn_mesh_shape == row.dcn);
  }
}

// A model with L layers of width M, n heads of 128 and F hidden dims has
// L(4·M·128n + 3MF + 2M) + 2·32768·M + M weights.
TEST_CASE("seqax's recipes have seqax's numbers of weights, batches and meshes") {
  check_rows({{"seqax.A100x8Lm84M", 100'672'000, 64, {1, 8, 1}, {}},
              {"seqax.FlatTokens84M", 100'672'000, 64, {1, 1, 1}, {}},
              {"seqax.HuggingFace84M", 100'672'000, 64, {1, 1, 1}, {}},
              {"seqax.A100x8Lm270M", 335'561'728, 64, {1, 8, 1}, {}},
              {"seqax.A100x8Lm540M", 671'123'456, 64, {1, 8, 1}, {}},
              {"seqax.A100x8Lm1B", 1'073'776'640, 64, {1, 8, 1}, {}},
              {"seqax.A100x8Lm2B", 2'147'553'280, 64, {1, 8, 1}, {}},
              {"seqax.A100x8x4Lm540M", 1'208'027'136, 256, {1, 8, 1}, {1, 4, 1}},
              {"seqax.A100x8x4Lm1B", 1'073'776'640, 256, {1, 8, 1}, {1, 4, 1}},
              {"seqax.A100x8x4Lm2B", 2'147'553'280, 256, {1, 8, 1}, {1, 4, 1}},
              {"seqax.LocalSynthetic", 2'426'112, 64, {1, 4, 2}, {}}});
}

// GPT-2's published numbers of weights.
TEST_CASE("GPT-2's recipes have GPT-2's numbers of weights and Levanter's batches") {
  check_rows({{"gpt2.Small", 124'439'808, 512, {}, {}},
              {"gpt2.SmallFast", 124'439'808, 256, {}, {}},
              {"gpt2.Medium", 354'823'168, 512, {}, {}},
              {"gpt2.Large", 774'030'080, 512, {}, {}},
              {"gpt2.Xl", 1'557'611'200, 512, {}, {}},
              {"gpt2.Nano", 1'666'464, 32, {}, {}}});
  // Files are read in order, and the last of a row's 1024 tokens has no label.
  const ExperimentConfig config = config_of("gpt2.Small");
  const auto& input = config.input.as<FlatTokensInput::HParams>();
  REQUIRE(input.labels == Labels::kNextInRow);
  REQUIRE(input.shuffle == Shuffle::kNone);
}

// A model with L layers of width M, F hidden dims and heads of d has
// L(4·M² + 2MF + F + 5M + d) + 32000(M + 1) + 2M weights.
TEST_CASE("bert's recipes have Pax's numbers of weights, batches and meshes") {
  check_rows({{"bert.AdamL4H128", 4'919'360, 64, {8, 1, 1}, {}},
              {"bert.SpmdL4H128", 4'919'360, 32, {1, 4, 2}, {}},
              {"bert.SpmdL33H12kBiggerBatch", 100'055'210'336, 2048, {1, 64, 8}, {}},
              {"bert.SpmdL33H12kBiggerBatch8x8x16", 100'055'210'336, 4096, {1, 64, 16}, {}},
              {"bert.SpmdL66H12kBiggerBatch8x8x16", 199'717'148'096, 4096, {1, 64, 16}, {}},
              {"bert.SpmdL66H12kBiggerBatch8x8x8", 199'717'148'096, 512, {1, 64, 8}, {}}});
}

TEST_CASE("seqax's recipes have seqax's learning rates, steps and checkpoint intervals") {
  struct Schedule {
    std::string name;
    double learning_rate = 0.0;
    int64_t warmup = 0, steps = 0, save = 0;
  };
  const std::vector<Schedule> rows = {{"seqax.A100x8Lm84M", 3e-3, 2600, 26000, 2600},
                                      {"seqax.FlatTokens84M", 3e-4, 2600, 26000, 100},
                                      {"seqax.HuggingFace84M", 3e-4, 2600, 26000, 100},
                                      {"seqax.A100x8Lm270M", 3e-4, 9200, 92000, 9200},
                                      {"seqax.A100x8Lm540M", 3e-4, 18500, 185000, 4000},
                                      {"seqax.A100x8Lm1B", 1e-5, 37000, 370000, 10000},
                                      {"seqax.A100x8Lm2B", 1e-5, 74000, 740000, 10000},
                                      {"seqax.A100x8x4Lm540M", 3e-4, 4625, 46250, 2500},
                                      {"seqax.A100x8x4Lm1B", 1e-5, 9250, 92500, 2500},
                                      {"seqax.A100x8x4Lm2B", 1e-5, 18500, 185000, 2500}};
  for (const Schedule& row : rows) {
    INFO(row.name);
    const auto task = config_of(row.name).task.instantiate();
    const TrainHParams& train = task->train();
    REQUIRE(train.num_train_steps == row.steps);
    REQUIRE(train.save_interval_steps == row.save);
    const BaseOptimizer& optimizer = task->learner().optimizer();
    REQUIRE(optimizer.learning_rate(row.warmup, row.steps) == Approx(row.learning_rate));
    REQUIRE(optimizer.learning_rate(row.warmup / 2, row.steps) ==
            Approx(row.learning_rate / 2).epsilon(1e-3));
    REQUIRE(optimizer.learning_rate(row.steps, row.steps) == Approx(0.1 * row.learning_rate));
  }
}

TEST_CASE("a recipe of seqax on four hosts is planned, and one without data prints commands") {
  const TemporaryDirectory directory;
  const Ended plan = successful(
      run_program(directory.path(), "runexp", {"--exp=seqax.A100x8x4Lm2B", "--mode=plan"}));
  REQUIRE_THAT(plan.output, Contains("data=32 (8 within a slice x 4 slices)"));
  const Ended tokens =
      with_code(2, run_program(directory.path(), "runexp", {"--exp=seqax.FlatTokens84M"}));
  REQUIRE_THAT(tokens.output, Contains("data/c4_en.h5 does not exist (flat_tokens_path)") &&
                                  Contains("\n  hf download allenai/c4 ") &&
                                  Contains("\n  ./flat_tokens build --output=data/c4_en.h5 "
                                           "--tokenizer=data/c4_en.32000.model "));
  const Ended text =
      with_code(2, run_program(directory.path(), "runexp", {"--exp=seqax.HuggingFace84M"}));
  REQUIRE_THAT(text.output,
               Contains("data/en/c4-train.*.json.gz (c4_folder)") &&
                   Contains("\n  ./flat_tokens train --output=data/c4_en.32000.model") &&
                   !Contains("flat_tokens build"));
  const Ended pile = with_code(2, run_program(directory.path(), "runexp", {"--exp=Pile126M"}));
  REQUIRE_THAT(pile.output,
               Contains("data/the_pile.h5 does not exist (flat_tokens_path)") &&
                   Contains("\n  hf download monology/pile-uncopyrighted ") &&
                   Contains("\n  ./flat_tokens build --output=data/the_pile.h5 "
                            "--tokenizer=data/the_pile.50257.model "
                            "--validation=data/pile/val.jsonl.zst data/pile/train/00.jsonl.zst"));
}

}  // namespace
}  // namespace tessera
