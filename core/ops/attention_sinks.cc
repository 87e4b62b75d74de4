// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_sinks.h"

#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {

Attended with_sinks(const Attended& plain, const Tensor& sinks) {
  const Tensor lse = transpose(plain.lse, "batch seq heads");
  const Tensor score = as_dtype(sinks, lse.dtype());
  const Tensor share = sigmoid(lse - score);
  const Tensor most = maximum(plain.lse, score);
  return {as_dtype(widened(plain.out) * share, plain.out.dtype()),
          most + log(exp(plain.lse - most) + exp(score - most))};
}

// d out'/d s = -out'·(1 - σ(lse - s)), where 1 - σ is exp(s - lse').
Tensor sinks_gradient(const Attended& result, const Tensor& cotangent, const Tensor& sinks) {
  const Tensor product = widened(result.out) * widened(cotangent);
  const Tensor sums = transpose(reduce_sum(product, "head_dim"), "batch heads seq");
  return neg(reduce_sum(sums * exp(sinks - result.lse), "batch seq"));
}

}  // namespace tessera
