// SPDX-License-Identifier: Apache-2.0
#include "layers/base_softmax.h"

#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

Tensor project(Tensor matrix, Tensor bias, Tensor x) {
  const Tensor logits = place(einsum(x, matrix, over("embed")));
  return bias.valid() ? logits + bias : logits;
}

// ["batch seq …"] -> ["chunks batch seq …"], the sequence cut into `count` runs.
Tensor cut(Tensor x, int64_t count) {
  Tensor parts = split_axis(x, "seq", {"chunks", count, {}}, {"seq", x.size("seq") / count, {}});
  std::string order = "chunks";
  for (const std::string& name : parts.type().names())
    if (name != "chunks") order += " " + name;
  return transpose(parts, order);
}

// The reverse, of ["chunks batch seq"].
Tensor join(Tensor parts) {
  return merge_axes(transpose(parts, "batch chunks seq"), "chunks", "seq", "seq");
}

}  // namespace

BaseSoftmax::BaseSoftmax(const Field<DTypePolicy>& dtypes, const LayerRules& rules,
                         const SoftmaxOptions& options)
    : Layer(dtypes, rules), options_(options) {
  if (options.num_chunks < 1) fail("num_chunks is {}, expected at least 1", options.num_chunks);
}

Tensor BaseSoftmax::embed_ids(Tensor) const {
  fail(
      "{} has no table to share with the input embedding; set separate_embedding_tpl, or take "
      "SharedEmbeddingSoftmax",
      path());
}

Tensor BaseSoftmax::logits(Tensor x) const {
  const LayerScope scope(*this);
  const Projection weights = projection();
  Tensor scores = cast(project(weights.matrix, weights.bias, place(x)), dtypes().output);
  if (options_.soft_cap > 0) scores = tanh(scores / options_.soft_cap) * options_.soft_cap;
  return scores;
}

CrossEntropy BaseSoftmax::loss(Tensor x, Tensor labels) const {
  const LayerScope scope(*this);
  x = place(x);                             // Gathers a residual that is split along its sequence.
  const Projection weights = projection();  // Outside the loop: cast and placed once.
  if (options_.num_chunks == 1) return whole_loss(weights, x, labels);
  return chunked_loss(weights, x, labels);
}

CrossEntropy BaseSoftmax::whole_loss(const Projection& weights, Tensor x, Tensor labels) const {
  return cross_entropy(project(weights.matrix, weights.bias, x), labels, "vocab",
                       {options_.label_smoothing, options_.z_loss, options_.soft_cap});
}

CrossEntropy BaseSoftmax::chunked_loss(const Projection& weights, Tensor x, Tensor labels) const {
  const int64_t count = options_.num_chunks;
  if (x.size("seq") % count != 0)
    fail("num_chunks={} does not divide the sequence of {} tokens", count, x.size("seq"));
  const RepeatResult result =
      repeat("chunks", count, {}, {cut(x, count), cut(labels, count)},
             [&](Tensor, std::vector<Tensor>, std::vector<Tensor> slices) -> RepeatBody {
               const CrossEntropy chunk = whole_loss(weights, slices[0], slices[1]);
               return {{}, {chunk.loss, chunk.log_likelihood, chunk.correct}};
             });
  return {join(result.stacked[0]), join(result.stacked[1]), join(result.stacked[2])};
}

}  // namespace tessera
