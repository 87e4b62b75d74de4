// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tiny_run.h"

#include "layers/models/language_model.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

TEST_CASE("a tiny run learns to copy, evaluates and ends with a checkpoint") {
  const TemporaryDirectory directory;
  const ExperimentConfig config = tiny_config(150);
  REQUIRE(run_tiny(config, directory.path()) == 0);
  const std::vector<std::string> losses = values_of(directory.path(), "loss");
  REQUIRE(losses.size() == 150);
  REQUIRE(std::stod(losses.front()) > 2.5);
  REQUIRE(std::stod(losses.back()) < 1.0);
  REQUIRE(std::stod(values_of(directory.path(), "eval/validation/log_pplx").at(0)) < 1.0);
  REQUIRE(std::filesystem::exists(directory / "checkpoints/step_0000000150"));
}

TEST_CASE("dropout draws the same masks for microbatches as for the whole batch") {
  const TemporaryDirectory directory;
  const auto losses = [&](const std::string& name, int64_t microbatches, int64_t seed) {
    ExperimentConfig config = tiny_config(3);
    SingleTask::HParams& task = task_of(config);
    task.model.as<LanguageModel::HParams>()
        .lm_tpl.as<TransformerLm::HParams>()
        .embedding_dropout_rate = 0.5;
    task.train.num_microbatches = microbatches;
    task.train.seed = seed;
    REQUIRE(run_tiny(config, directory / name) == 0);
    std::vector<double> values;
    for (const auto& [step, loss] : losses_of(directory / name)) values.push_back(std::stod(loss));
    return values;
  };
  const std::vector<double> whole = losses("whole", 1, 1), parts = losses("parts", 2, 1);
  REQUIRE(whole.size() == 3);
  for (size_t i = 0; i < whole.size(); ++i) REQUIRE(parts[i] == Approx(whole[i]).epsilon(1e-5));
  REQUIRE(losses("other", 1, 2) != whole);
}

}  // namespace
}  // namespace tessera
