// SPDX-License-Identifier: Apache-2.0
// Attention sinks: one more score for each head, which is part of the softmax's denominator but has
// no value, so that a head may attend to nothing (gpt-oss; OpenAI, 2025, arXiv 2508.10925). With
// lse the logarithm of the denominator and s the sink's score,
//
//   out' = out·σ(lse - s),  lse' = log(exp(lse) + exp(s)).
//
// So the kernels of attention know nothing of sinks. Those of its gradient neither: they give the
// gradients of queries, keys and values from out', lse' and the cotangent of out'.
#pragma once

#include <span>

#include "core/graph/graph.h"
#include "core/graph/op.h"

namespace tessera {

// Results of attention: out["batch seq heads head_dim"] and lse["batch heads seq"].
struct Attended {
  Tensor out, lse;
};

// The results with sinks["heads"]. Without gradients, for decoding.
Attended with_sinks(const Attended& plain, const Tensor& sinks);

// The same from an attention node and its operands (q, k, v, [segment ids]), with gradients.
// Returns out'.
Tensor attention_sinks(std::span<const Tensor> operands, const Attended& plain, const Tensor& sinks,
                       const Attributes& attributes, const SourceSite& site);

extern const Op kAttentionSinksOp;

}  // namespace tessera
