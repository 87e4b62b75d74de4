// SPDX-License-Identifier: Apache-2.0
// SingleTask: one model and one learner. Traces the graph of a training step (forward, gradients,
// clipping, update and metrics), of evaluation, and of decoding. It does not run graphs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/hparams/fields.h"
#include "core/hparams/layer_params.h"
#include "core/hparams/template.h"
#include "tasks/task/base_task.h"
#include "tasks/task/learner/learner.h"

namespace tessera {

class SingleTask final : public BaseTask {
 public:
  struct HParams {
    using Instance = SingleTask;
    Field<DTypePolicy> dtypes;  // The default for all layers.
    Template<BaseModel> model;
    Learner::HParams learner;
    TrainHParams train;
    DecodeHParams decode;
    // Maximal update parametrization (layers/parameter.h): sizes in the base model, for which
    // learning rates and initial values are set, of the axes that are widths. Empty: standard.
    std::map<std::string, int64_t> mup_base;
    FIELDS(dtypes, model, learner, train, decode,
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
};

extern template class HolderOf<BaseTask, SingleTask::HParams>;

}  // namespace tessera
