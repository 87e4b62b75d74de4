// SPDX-License-Identifier: Apache-2.0
// elsewhere.Tiny: a one-layer model of synthetic sequences with a user-defined activation, which
// --set can name, and a user-defined metric. elsewhere.Sharded: the same with other mesh axes.
#include <algorithm>

#include "core/ops/elementwise.h"
#include "inputs/synthetic_input.h"
#include "layers/feed_forward/activations.h"
#include "layers/models/language_model.h"
#include "plugins/registry.h"
#include "tasks/task/single_task.h"

namespace elsewhere {

// The activation x·|x|.
class SignedSquare final : public tessera::Activation {
 public:
  struct HParams {
    using Instance = SignedSquare;
    FIELDS()
  };
  explicit SignedSquare(const HParams&) {}

 private:
  tessera::Tensor fprop(tessera::Tensor x) const override { return x * abs(x); }
};
const tessera::TemplateRegistrar<tessera::Activation, SignedSquare> kRegister;

// The largest loss of any example of an eval dataset.
class Worst final : public tessera::ScoreMetric {
 public:
  struct HParams {
    using Instance = Worst;
    static constexpr std::string_view kName = "Worst";
    FIELDS()
  };
  explicit Worst(const HParams&) {}
  std::vector<std::string> names() const override { return {"loss"}; }
  void add(const tessera::ScoredExample& example) override {
    const tessera::ExampleScore& score = example.scores.at("loss");
    loss_ = std::max(loss_, score.sum / score.weight);
  }
  std::map<std::string, double> values() const override { return {{"loss", loss_}}; }

 private:
  double loss_ = 0.0;
};
const tessera::TemplateRegistrar<tessera::ScoreMetric, Worst> kRegisterMetric;

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
    tessera::SyntheticInput::HParams letters{.global_batch_size = 4, .seq_len = 16};
    tessera::SyntheticInput::HParams validation = letters;
    validation.num_batches = 2;
    return {
        .mesh = mesh(),
        .task =
            tessera::SingleTask::HParams{
                .model = tessera::LanguageModel::HParams{.lm_tpl = lm},
                .learner = {.optimizer_tpl = tessera::AdamW::HParams{.learning_rate = 1e-2}},
                .train = {.num_train_steps = 5,
                          .save_interval_steps = 5,
                          .eval_interval_steps = 5}},
        .input = letters,
        .eval_inputs = {{"validation", validation}},
        .eval = {.datasets = {{"validation", {.score_metrics = {{"worst", Worst::HParams{}}}}}}}};
  }
};
REGISTER_EXPERIMENT(elsewhere, Tiny)

struct Sharded : Tiny {
  tessera::ExperimentConfig build() const override {
    tessera::ExperimentConfig config = Tiny::build();
    config.mesh.axis_names = {"data", "tp"};
    config.rules.weights = "embed -> data, mlp -> tp, heads -> tp, kv_heads -> tp, vocab -> tp";
    config.rules.activations =
        "residual: seq -> tp, batch -> data, mlp -> tp, heads -> tp, kv_heads -> tp, vocab -> tp";
    return config;
  }
};
REGISTER_EXPERIMENT(elsewhere, Sharded)

}  // namespace elsewhere
