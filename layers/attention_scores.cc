// SPDX-License-Identifier: Apache-2.0
#include "layers/attention_scores.h"

#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/shared_heads.h"
#include "core/ops/softmax.h"

namespace tessera {
namespace {

// bool["batch seq key_seq"], or fewer axes; invalid where all may be seen.
Tensor visible(const Tensor& scores, const AttentionOptions& options) {
  Tensor mask;
  if (options.mask == AttentionMask::kCausal)
    mask = causal_mask(scores.type().axis("seq"), scores.type().axis("key_seq"));
  if (!options.segment_ids.valid()) return mask;
  const Tensor keys = options.key_segment_ids.valid()
                          ? options.key_segment_ids
                          : rename(options.segment_ids, "seq", "key_seq");
  const Tensor same = equal(options.segment_ids, keys);
  return mask.valid() ? logical_and(same, mask) : same;
}

}  // namespace

Tensor attention_by_scores(Tensor q, Tensor k, Tensor v, const AttentionOptions& options,
                           const UnaryLayer& dropout) {
  k = shared_heads(k, q.type().axis("heads"));
  v = shared_heads(v, q.type().axis("heads"));
  const int64_t kv_heads = k.size("kv_heads");
  const Tensor grouped =
      split_axis(q, "heads", {"kv_heads", kv_heads, {}}, {"group", q.size("heads") / kv_heads, {}});
  Tensor scores = einsum(
      "batch seq kv_heads group head_dim, batch key_seq kv_heads head_dim -> "
      "batch kv_heads group seq key_seq",
      cast(grouped, DType::kF32), cast(k, DType::kF32));
  scores = scores * options.scale;
  if (options.logit_cap > 0) scores = tanh(scores / options.logit_cap) * options.logit_cap;
  if (const Tensor mask = visible(scores, options))
    scores = where(mask, scores, constant(-1e30, DType::kF32));
  const Tensor probabilities = dropout.fprop(softmax(scores, "key_seq"));
  const Tensor context = einsum(
      "batch kv_heads group seq key_seq, batch key_seq kv_heads head_dim -> "
      "batch seq kv_heads group head_dim",
      cast(probabilities, v.dtype()), v);
  return merge_axes(context, "kv_heads", "group", "heads");
}

}  // namespace tessera
