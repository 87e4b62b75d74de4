// SPDX-License-Identifier: Apache-2.0
#include "layers/models/multi_token_prediction.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/summaries.h"

namespace tessera {

REGISTER_TEMPLATE(MultiTokenPrediction, MultiTokenPrediction);

namespace {

// Element i + count of x["batch seq"] at i, and 0 at the end of a row. Whole rows are gathered on
// each device: ids and weights are small.
Tensor ahead(const Tensor& x, int64_t count) {
  const Tensor rows = whole_along(x, "seq");
  const int64_t seq = rows.size("seq");
  return reshard(pad(slice(rows, "seq", count, seq), "seq", 0, count), x.type());
}

// The weights of the labels that are `count` tokens later: 0 in another segment, and of padding.
Tensor weights_ahead(const PredictedTokens& tokens, const Tensor& weights, int64_t count) {
  const Tensor later = ahead(weights, count);
  if (!tokens.segment_ids.valid()) return later;
  Type type = later.type();
  type.dtype = DType::kI32;
  const Tensor ids = reshard(tokens.segment_ids, type);
  const Tensor is_token = less(constant(0.0, DType::kI32), ids);
  return mask(later, logical_and(is_token, equal(ids, ahead(ids, count))));
}

}  // namespace

MultiTokenPrediction::MultiTokenPrediction(const HParams& p)
    : LayerOf(p.layer), loss_weight_(p.loss_weight) {
  const Axis embed{"embed", p.model_dims.get()}, mlp{"mlp", p.model_dims.get()};
  for (int64_t k = 1; k <= p.num_tokens; ++k) {
    // Without brackets: an index in a path is the place in a stack.
    const auto named = [&](std::string_view part) { return fmt::format("module{}_{}", k, part); };
    Module module;
    module.hidden_norm = child(named("hidden_norm"), p.norm_tpl);
    module.token_norm = child(named("token_norm"), p.norm_tpl);
    module.hidden = weight(named("hidden"), {embed, mlp}, p.layer.init());
    module.token = weight(named("token"), {embed, mlp}, p.layer.init());
    module.block = child(named("block"), p.block_tpl);
    module.final_norm = child(named("final_norm"), p.norm_tpl);
    modules_.push_back(std::move(module));
  }
}

Tensor MultiTokenPrediction::hidden_state(const Module& module, Tensor x, Tensor embedded,
                                          const SequenceInfo& sequence) const {
  const RematScope region;
  const Tensor hidden = place(module.hidden_norm(x)), token = place(module.token_norm(embedded));
  const Tensor both = place(product(hidden, param(module.hidden), over("embed")) +
                            product(token, param(module.token), over("embed")));
  return module.block(place(rename(both, "mlp", "embed"), "residual"), sequence);
}

Tensor MultiTokenPrediction::fprop(Tensor x, const SequenceInfo& sequence,
                                   const PredictedTokens& tokens) const {
  const auto count = static_cast<int64_t>(modules_.size());
  const Tensor& labels = tokens.labels;
  if (labels.size("seq") <= count)
    fail("num_tokens={} needs sequences of more tokens, but a row has {}", count,
         labels.size("seq"));
  const Tensor weights =
      tokens.weights.valid() ? tokens.weights : constant(1.0, DType::kF32, labels.type().axes);
  Tensor sum;
  for (int64_t k = 1; k <= count; ++k) {
    const Module& module = modules_[static_cast<size_t>(k - 1)];
    const Tensor token = k == 1 ? labels : ahead(labels, k - 1);
    x = hidden_state(module, x, tokens.embed(token), sequence);
    const CrossEntropy scores = tokens.loss(module.final_norm(x), ahead(labels, k));
    const Tensor later = weights_ahead(tokens, weights, k);
    add_metric(fmt::format("mtp_log_pplx_{}", k),
               {reduce_sum(neg(scores.log_likelihood) * later), reduce_sum(later)});
    const Tensor loss = reduce_sum(scores.loss * later);
    sum = sum.valid() ? sum + loss : loss;
  }
  // A microbatch may have no tokens.
  const Tensor total = maximum(reduced(reduce_sum(weights)), constant(1e-30, DType::kF32));
  return sum * (loss_weight_ / static_cast<double>(count)) / total;
}

}  // namespace tessera
