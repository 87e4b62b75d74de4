// SPDX-License-Identifier: Apache-2.0
// SingleTask: one model and one learner. Traces the graph of a training step (forward, gradients,
// clipping, update and metrics), of evaluation, and of decoding. It does not run graphs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/layer_params.h"
#include "core/hparams/template.h"
#include "tasks/task/base_task.h"
#include "tasks/task/learner/learner.h"

namespace tessera {

// Training computes losses and gradients at weights with Gaussian noise (Graves, 2011; Pax: vn).
struct VariationalNoise {
  static constexpr std::string_view kName = "VariationalNoise";
  double scale = 0.0;                         // Its standard deviation; 0: no noise.
  std::vector<std::string> weights = {".*"};  // Regular expressions that match whole paths.
  int64_t start_step = 0;                     // Steps before it have no noise.
  FIELDS(About(scale, kNotNegative), weights, About(start_step, {.min = 0, .max = 2147483647}))
};

class SingleTask final : public BaseTask {
 public:
  struct HParams {
    using Instance = SingleTask;
    Field<DTypePolicy> dtypes;  // The default for all layers.
    Template<BaseModel> model;
    Learner::HParams learner;
    TrainHParams train;
    DecodeHParams decode;
    // Factors of metrics ("loss": the model's own, "aux_loss", …) whose sum training optimises;
    // empty: the model's loss and all auxiliary losses.
    std::map<std::string, double> losses;
    VariationalNoise variational_noise;
    // Maximal update parametrization (layers/parameter.h): sizes in the base model, for which
    // learning rates and initial values are set, of the axes that are widths. Empty: standard.
    std::map<std::string, int64_t> mup_base;
    FIELDS(dtypes, model, learner, train, decode, losses, variational_noise,
           About(mup_base, "axes that are widths, with their sizes in the base model of muP",
                 kSize))
  };
  explicit SingleTask(const HParams& p);

  const BaseModel& model() const override { return *model_; }
  const TrainHParams& train() const override { return p_.train; }
  const DecodeHParams& decode() const override { return p_.decode; }
  const Learner& learner() const override { return learner_; }
  Graph train_graph(const TraceSetting& setting) const override;
  Graph eval_graph(const TraceSetting& setting, Weights weights) const override;
  Graph logits_graph(const TraceSetting& setting, Weights weights) const override;
  Graph decode_graph(const DecodeSetting& setting, Weights weights) const override;
  Graph cast_weights_graph(const DecodeSetting& setting, Weights weights) const override;
  Graph reorder_cache_graph(const DecodeSetting& setting) const override;

 private:
  HParams p_;
  std::unique_ptr<BaseModel> model_;
  Learner learner_;
  PathPatterns noisy_;
};

extern template class HolderOf<BaseTask, SingleTask::HParams>;

}  // namespace tessera
