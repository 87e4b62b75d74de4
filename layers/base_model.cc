// SPDX-License-Identifier: Apache-2.0
#include "layers/base_model.h"

#include "core/base/error.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/generator.h"
#include "core/graph/ops/reduce.h"

namespace tessera {

ModelOutput weighted_output(const CrossEntropy& scores, Tensor weights) {
  if (!weights.valid()) weights = constant(1.0, DType::kF32, scores.loss.type().axes);
  const Tensor total = reduce_sum(weights).named("total_weight");
  const auto mean = [&](Tensor values) { return Metric{reduce_sum(values * weights), total}; };
  ModelOutput output;
  output.loss = mean(scores.loss);
  output.metrics["log_pplx"] = mean(neg(scores.log_likelihood));
  output.metrics["accuracy"] = mean(scores.correct);
  return output;
}

Tensor BaseModel::next_logits(const Features&) const {
  fail(
      "this model cannot decode token by token: it does not override BaseModel::next_logits "
      "(layers/language_model.h does; its attention keeps keys and values in a cache)");
}

}  // namespace tessera
