// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tiny_run.h"

#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "tests/support/run_with.h"
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

}  // namespace tessera
