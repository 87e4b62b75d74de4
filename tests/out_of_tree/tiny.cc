// SPDX-License-Identifier: Apache-2.0
// elsewhere.Tiny: a one-layer model of synthetic sequences, with an activation of its own that
// --set can name.
#include "core/graph/ops/elementwise.h"
#include "inputs/synthetic_input.h"
#include "layers/activations.h"
#include "layers/language_model.h"
#include "plugins/registry.h"
#include "tasks/single_task.h"

namespace elsewhere {

// x·|x|: a layer is a class with HParams and fprop.
class SignedSquare final : public tessera::Activation {
 public:
  struct HParams {
    using Instance = SignedSquare;
    static constexpr std::string_view kName = "SignedSquare";
    FIELDS()
  };
  explicit SignedSquare(const HParams&) {}
  tessera::Tensor fprop(tessera::Tensor x) const override { return x * abs(x); }
};
const tessera::TemplateRegistrar<tessera::Activation, SignedSquare> kRegister;

struct Tiny : tessera::Experiment {
  using Base = tessera::Experiment;
  static constexpr std::string_view kSummary = "a plugin outside the tree";
  int64_t model_dims = 16;
  FIELDS(model_dims)

  tessera::ExperimentConfig build() const override {
    const tessera::TransformerLm::HParams lm{.vocab_size = 32,
                                             .model_dims = model_dims,
                                             .num_layers = 1,
                                             .num_heads = 2,
                                             .hidden_dims = 32,
                                             .packed_input = false};
    return {.mesh = mesh(),
            .task =
                tessera::SingleTask::HParams{
                    .model = tessera::LanguageModel::HParams{.lm_tpl = lm},
                    .learner = {.optimizer_tpl = tessera::AdamW::HParams{.learning_rate = 1e-2}},
                    .train = {.num_train_steps = 5,
                              .save_interval_steps = 5,
                              .eval_interval_steps = 0}},
            .input = tessera::SyntheticInput::HParams{.global_batch_size = 4, .seq_len = 16}};
  }
};
REGISTER_EXPERIMENT(elsewhere, Tiny)

}  // namespace elsewhere
