// SPDX-License-Identifier: Apache-2.0
// quickstart.MixtureLm: a mixture of sources whose weights change during training, and the
// validation loss of each. The sources are synthetic, so that it runs without data; a source of
// token files is {"web", FlatTokensInput::HParams{.path = "web/*.h5", .shuffle = Shuffle::kEra}}.
#include "experiments/quickstart/byte_lm.h"
#include "inputs/mixture/mixture_input.h"
#include "inputs/synthetic_input.h"
#include "plugins/registry.h"

namespace tessera {

struct MixtureLm : ByteLm {
  using Base = ByteLm;
  static constexpr std::string_view kSummary =
      "learns a mixture of synthetic sources whose weights change at --set reversal_begins=STEP";
  int64_t reversal_begins = 128;  // The step from which reversal is in the mixture.
  int64_t block_size = 1024;
  FIELDS(reversal_begins, block_size)

  MixtureLm() {
    num_layers = 2;
    model_dims = 64;
    hidden_dims = 192;
    seq_len = 64;
    num_train_steps = 400;
    warmup_steps = 40;
  }

  ExperimentConfig build() const override {
    ExperimentConfig config = ByteLm::build();
    // All sources use the same alphabet, so that ids have the same meaning.
    const auto source = [](SyntheticTask task) {
      return SyntheticInput::HParams{.task = task, .num_letters = 20, .distance = 8};
    };
    MixtureInput::HParams mixture{
        .sources = {{"copy", source(SyntheticTask::kCopy)},
                    {"hidden_copy", source(SyntheticTask::kHiddenCopy)},
                    {"reversal", source(SyntheticTask::kReversal)}},
        .weights = {{"copy", 0.75}, {"hidden_copy", 0.25}, {"reversal", 0.0}},
        .stages = {{.step = reversal_begins,
                    .weights = {{"copy", 0.25}, {"hidden_copy", 0.25}, {"reversal", 0.5}}}},
        .block_size = block_size,
        .global_batch_size = global_batch_size,
        .seq_len = seq_len};
    config.input = mixture;
    // Validation: another seed, equal weights, and enough batches to distinguish the losses.
    mixture.name = "validation";
    mixture.weights = {{"copy", 1.0}, {"hidden_copy", 1.0}, {"reversal", 1.0}};
    mixture.stages.clear();
    mixture.num_batches = 16;
    mixture.seed = 4321;
    config.eval_inputs = {{"validation", mixture}};
    return config;
  }
};

REGISTER_EXPERIMENT(quickstart, MixtureLm)

}  // namespace tessera
