// SPDX-License-Identifier: Apache-2.0
#include "layers/models/base_model.h"

#include "core/base/error.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"

namespace tessera {

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
