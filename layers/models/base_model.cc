// SPDX-License-Identifier: Apache-2.0
#include "layers/models/base_model.h"

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

// Auxiliary losses have the weight of the model's loss, so that sums over microbatches and batches
// are means weighted by tokens. Evaluation does not optimise, and its loss is a mean over examples,
// in whatever batches they come: it leaves them out.
void add_losses(const std::map<std::string, Tensor>& losses, Mode mode, ModelOutput* output) {
  if (losses.empty()) return;
  const Tensor weight = reduced(output->loss.weight);
  Tensor total;
  for (const auto& [name, loss] : losses) {
    output->metrics[name] = {loss * weight, weight};
    const Tensor sum = loss.type().rank() > 0 ? reduce_sum(loss) : loss;
    total = total.valid() ? total + sum : sum;
  }
  const Tensor weighted = total * weight;
  output->metrics[std::string(kAuxLoss)] = {weighted, weight};
  if (mode == Mode::kTrain) output->loss = {reduced(output->loss.sum) + weighted, weight};
}

}  // namespace

ModelOutput weighted_output(const CrossEntropy& scores, Tensor weights) {
  if (!weights.valid()) weights = constant(1.0, DType::kF32, scores.loss.type().axes);
  const Tensor total = reduce_sum(weights).named("total_weight");
  ModelOutput output;
  const auto mean = [&](const char* name, Tensor values) {
    const Tensor weighted = values * weights;
    output.terms[name] = {weighted, weights};
    return Metric{reduce_sum(weighted), total};
  };
  output.loss = mean("loss", scores.loss);
  output.metrics["log_pplx"] = mean("log_pplx", neg(scores.log_likelihood));
  output.metrics["accuracy"] = mean("accuracy", scores.correct);
  return output;
}

ModelOutput BaseModel::operator()(const Features& features) const {
  const SummaryScope summaries;
  ModelOutput output = LayerOf::operator()(features);
  summaries.check_names(output.metrics);
  output.metrics.insert(summaries.metrics().begin(), summaries.metrics().end());
  add_losses(summaries.losses(), features.mode, &output);
  return output;
}

Tensor BaseModel::logits(const Features& features) const {
  const LayerScope scope(*this);
  return fprop_logits(features);
}

Tensor BaseModel::next_logits(const Features& features) const {
  const LayerScope scope(*this);
  return fprop_next_logits(features);
}

Tensor BaseModel::fprop_next_logits(const Features&) const {
  fail(
      "this model cannot decode token by token: it does not override fprop_next_logits, as "
      "LanguageModel does (layers/models/language_model.h), whose attention keeps keys and values "
      "in a cache");
}

}  // namespace tessera
