// SPDX-License-Identifier: Apache-2.0
#include "layers/models/language_model.h"

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "layers/fprop_scope.h"

namespace tessera {

REGISTER_TEMPLATE(BaseModel, LanguageModel);

LanguageModel::LanguageModel(const HParams& p)
    : lm_(child("lm", p.lm_tpl)),
      teacher_weight_(p.teacher_weight),
      temperature_(p.teacher_temperature) {
  if (!p.teacher_tpl.has()) return;
  teacher_ = frozen_child("teacher", p.teacher_tpl);
  const auto vocabulary = [](const Template<TransformerLm>& lm_tpl) {
    return lm_tpl.as<TransformerLm::HParams>().vocab_size.get();
  };
  if (vocabulary(p.teacher_tpl) != vocabulary(p.lm_tpl))
    fail(
        "teacher_tpl.vocab_size={} differs from lm_tpl.vocab_size={}; a teacher must have the "
        "tokens of its student",
        vocabulary(p.teacher_tpl), vocabulary(p.lm_tpl));
}

ModelOutput LanguageModel::fprop(const Features& features) const {
  if (features.draws_labels) {
    const Tensor uniform =
        random_uniform(features.get("labels").type().axes, Operand(features.step));
    return weighted_output(lm_->softmax().drawn_loss(lm_->scored(features), uniform),
                           features.find("weights"));
  }
  if (teacher_ && features.mode == Mode::kTrain) return taught(features);
  return weighted_output(lm_->loss(features), features.find("weights"));
}

ModelOutput LanguageModel::taught(const Features& features) const {
  Tensor taught;
  {
    // Without dropout, and without its auxiliary losses and metrics.
    const FpropScope scope(FpropScope::current(), Mode::kEval, features.find("segment_ids"));
    const SummaryScope summaries;
    Features evaluated = features;
    evaluated.mode = Mode::kEval;
    taught = stop_gradient(teacher_->scored(evaluated));
  }
  DistilledLoss scores = lm_->softmax().distilled_loss(
      lm_->scored(features), features.get("labels"), teacher_->softmax(), taught, temperature_);
  const double factor = teacher_weight_ * temperature_ * temperature_;
  scores.labels.loss = scores.labels.loss * (1.0 - teacher_weight_) + scores.divergence * factor;
  ModelOutput output = weighted_output(scores.labels, features.find("weights"));
  const Metric& weights = output.terms["loss"];
  output.metrics["teacher_divergence"] = {reduce_sum(scores.divergence * weights.weight),
                                          output.loss.weight};
  return output;
}

Tensor LanguageModel::fprop_logits(const Features& features) const { return lm_->logits(features); }

Tensor LanguageModel::fprop_next_logits(const Features& features) const {
  return lm_->next_logits(features);
}

}  // namespace tessera
