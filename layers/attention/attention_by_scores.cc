// SPDX-License-Identifier: Apache-2.0
#include "layers/attention/attention_by_scores.h"

#include <fmt/format.h>

#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

Tensor probabilities_of(Tensor scores, const ScoreOptions& options) {
  const int64_t kv_heads = scores.size("kv_heads"), group = scores.size("group");
  const auto grouped = [&](const Tensor& x) {
    return split_axis(x, "heads", {"kv_heads", kv_heads, {}}, {"group", group, {}});
  };
  scores = scores * options.scale;
  if (options.logit_cap > 0) scores = tanh(scores / options.logit_cap) * options.logit_cap;
  if (options.bias) scores = scores + grouped(options.bias);
  if (options.mask) scores = where(options.mask, scores, constant(-1e30, DType::kF32));
  Tensor probabilities = softmax(scores, "key_seq");
  // A query that may attend to no key gives 0.
  if (options.mask) probabilities = mask(probabilities, options.mask);
  if (!options.sinks) return probabilities;
  return probabilities * sigmoid(logsumexp(scores, "key_seq") - grouped(options.sinks));
}

}  // namespace

Tensor attention_by_scores(const Tensor& q, Tensor k, Tensor v, const ScoreOptions& options) {
  const bool splits_heads = !q.type().axis("heads").split.empty();
  if (trace_state().is_mesh_invariant && splits_heads && k.type().axis("kv_heads").split.empty()) {
    // Copies of a key head would have gradients that are added.
    ScoreOptions of_all = options;
    for (Tensor* const each : {&of_all.sinks, &of_all.bias})
      if (*each) *each = whole_along(*each, "heads");
    return reshard(attention_by_scores(whole_along(q, "heads"), k, v, of_all), q.type());
  }
  // All scores of a query are on one device.
  k = shared_heads(whole_along(k, "key_seq"), q.type().axis("heads"));
  v = shared_heads(whole_along(v, "key_seq"), q.type().axis("heads"));
  const int64_t kv_heads = k.size("kv_heads");
  const Tensor grouped =
      split_axis(q, "heads", {"kv_heads", kv_heads, {}}, {"group", q.size("heads") / kv_heads, {}});
  const Tensor scores = einsum(fmt::format("batch seq kv_heads group head_dim, {} -> "
                                           "batch kv_heads group seq key_seq",
                                           joined(k.type().names())),
                               cast(grouped, DType::kF32), cast(k, DType::kF32));
  Tensor probabilities = probabilities_of(scores, options);
  if (options.dropout != nullptr) probabilities = (*options.dropout)(probabilities);
  const Tensor context = einsum(fmt::format("batch kv_heads group seq key_seq, {} -> "
                                            "batch seq kv_heads group head_dim",
                                            joined(v.type().names())),
                                cast(probabilities, v.dtype()), v);
  return merge_axes(context, "kv_heads", "group", "heads");
}

Tensor attention_mask(const Axis& seq, const Axis& key_seq, const AttentionOptions& options) {
  Tensor mask;
  if (options.mask == AttentionMask::kCausal) mask = causal_mask(seq, key_seq);
  if (options.window > 0) {
    const Tensor size = constant(static_cast<double>(options.window), DType::kI32);
    const Tensor before = less(iota(seq), add(iota(key_seq), size));
    mask = logical_and(before, mask.valid() ? mask : less(iota(key_seq), add(iota(seq), size)));
  }
  if (!options.segment_ids.valid()) return mask;
  const Tensor keys = options.key_segment_ids.valid()
                          ? options.key_segment_ids
                          : rename(options.segment_ids, "seq", "key_seq");
  const Tensor same = equal(options.segment_ids, whole_along(keys, "key_seq"));
  return mask.valid() ? logical_and(same, mask) : same;
}

}  // namespace tessera
