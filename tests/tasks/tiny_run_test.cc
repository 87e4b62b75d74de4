// SPDX-License-Identifier: Apache-2.0
#include "tests/tasks/tiny_run.h"

#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "tests/support/catch.h"
#include "tests/support/run_with.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"

namespace tessera {

ExperimentConfig tiny_config(int64_t num_train_steps, DType compute) {
  const LanguageModel::HParams model{
      .lm_tpl = TransformerLm::HParams{.vocab_size = 24,
                                       .model_dims = 16,
                                       .num_layers = 1,
                                       .num_heads = 2,
                                       .hidden_dims = 32,
                                       .params_init = WeightInit{InitKind::kGaussian, 0.05}}};
  SyntheticInput::HParams input{.task = SyntheticTask::kCopy,
                                .global_batch_size = 8,
                                .seq_len = 16,
                                .num_letters = 8,
                                .distance = 2};
  SyntheticInput::HParams validation = input;
  validation.name = "validation";
  validation.seed = 99;
  validation.num_batches = 2;
  return {.task = SingleTask::HParams{.dtypes = DTypePolicy{.compute = compute},
                                      .model = model,
                                      .learner = {.optimizer_tpl =
                                                      AdamW::HParams{.learning_rate = 1e-2}},
                                      .train = {.num_train_steps = num_train_steps,
                                                .save_interval_steps = 0,
                                                .eval_interval_steps = 0}},
          .input = input,
          .eval_inputs = {{"validation", validation}}};
}

SingleTask::HParams& task_of(ExperimentConfig& config) {
  return config.task.as<SingleTask::HParams>();
}

TinyDevices::TinyDevices(int64_t count)
    : devices_(make_test_devices(count, 1)), in_order_(pointers(devices_)) {}

int run_tiny(const ExperimentConfig& config, const std::filesystem::path& directory,
             RunWith options) {
  ProcessGroup alone;
  return run_tiny(config, directory, std::move(options), alone);
}

int run_tiny(const ExperimentConfig& config, const std::filesystem::path& directory,
             RunWith options, ProcessGroup& processes) {
  options.experiment = "tests.Tiny";
  options.job_log_dir = directory;
  options.verbosity = Verbosity::kSilent;
  const TinyDevices devices(std::holds_alternative<PlanOptions>(options.mode) ? 1
                                                                              : options.devices);
  const auto trainer = make_run(config, options, devices.in_order(), processes);
  return trainer->run();
}

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
