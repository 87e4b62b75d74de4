// SPDX-License-Identifier: Apache-2.0
// A recipe that is planned within milliseconds, for tests of --search.
#pragma once

#include <string>
#include <vector>

#include "inputs/synthetic_input.h"
#include "layers/models/language_model.h"
#include "layers/models/transformer.h"
#include "tasks/search/search.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/optimizers.h"
#include "tasks/task/single_task.h"
#include "tests/support/hardware.h"

namespace tessera {

// Two stacked layers of 12 heads, 4 sequences of 128 tokens, on two devices.
inline ExperimentConfig small_recipe() {
  const TransformerBlock::HParams block{
      .ffn_tpl =
          FeedForward::HParams{.activation_tpl = SiLU::HParams{}, .use_gated_activation = true}};
  const TransformerLm::HParams lm{.vocab_size = 480,
                                  .model_dims = 192,
                                  .num_layers = 2,
                                  .num_heads = 12,
                                  .hidden_dims = 768,
                                  .stacked_transformer_tpl = Repeated::HParams{.block_tpl = block}};
  return {.mesh = {.ici_mesh_shape = {1, 2, 1}},
          .rules = strategy_rules(Strategy::kFullySharded),
          .task = SingleTask::HParams{.dtypes = DTypePolicy{.compute = DType::kBF16},
                                      .model = LanguageModel::HParams{.lm_tpl = lm},
                                      .learner = {.optimizer_tpl = AdamW::HParams{}},
                                      .train = {.num_train_steps = 1,
                                                .remat_policy = "save_nothing",
                                                .save_interval_steps = 0,
                                                .eval_interval_steps = 0}},
          .input = SyntheticInput::HParams{.global_batch_size = 4, .seq_len = 128}};
}

inline ExperimentConfig with_settings(ExperimentConfig config,
                                      const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    const size_t equals = set.find('=');
    set_path(config, set.substr(0, equals), set.substr(equals + 1));
  }
  return with_all_evals(config);
}

inline Configure small_configure() {
  return [](const std::vector<std::string>& sets) { return with_settings(small_recipe(), sets); };
}

// Options of a search for the small recipe on devices with this much memory.
inline SearchOptions small_options(std::vector<int64_t> devices, int64_t memory = 1'000'000'000) {
  SearchOptions options;
  options.hardware = hardware_named("h100");
  options.hardware.memory.bytes = memory;
  options.space.devices = std::move(devices);
  options.seconds = 600.0;
  return options;
}

}  // namespace tessera
