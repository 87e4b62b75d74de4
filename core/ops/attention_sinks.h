// SPDX-License-Identifier: Apache-2.0
// The arithmetic of attention sinks: one more score for each head, which is part of the softmax's
// denominator but has no value, so that a head may attend to nothing (gpt-oss; OpenAI, 2025, arXiv
// 2508.10925). With lse the logarithm of the denominator and s the sink's score,
//
//   out' = out·σ(lse - s),  lse' = log(exp(lse) + exp(s)).
//
// So the kernels of attention know nothing of sinks. Those of its gradient neither: they give the
// gradients of queries, keys and values from out', lse' and the cotangent of out'.
#pragma once

#include "core/graph/graph.h"

namespace tessera {

// Results of attention: out["batch seq heads head_dim"] and lse["batch heads seq"].
struct Attended {
  Tensor out, lse;
};

// The results with sinks["heads"].
Attended with_sinks(const Attended& plain, const Tensor& sinks);

// The gradient of the sinks, from results with them and the cotangent of out'.
Tensor sinks_gradient(const Attended& result, const Tensor& cotangent, const Tensor& sinks);

}  // namespace tessera
