// SPDX-License-Identifier: Apache-2.0
#include "layers/embeddings/embedding_softmax.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/layout.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {

REGISTER_TEMPLATE(Embedding, Embedding);
REGISTER_TEMPLATE(BaseSoftmax, FullSoftmax);
REGISTER_TEMPLATE(BaseSoftmax, SharedEmbeddingSoftmax);

namespace {

// Rows of table["vocab embed"], multiplied by √embed if `scaled`.
Tensor embedded(Tensor table, Tensor ids, bool scaled) {
  const Tensor rows = place(gather(table, ids, "vocab"), "residual");
  return scaled ? scale(rows, std::sqrt(static_cast<double>(rows.size("embed")))) : rows;
}

Tensor project(Tensor matrix, Tensor bias, Tensor x) {
  const Tensor logits = place(einsum(x, matrix, over("embed")));
  return bias.valid() ? logits + bias : logits;
}

// ["batch seq …"] -> ["chunks batch seq …"], the sequence cut into `count` consecutive chunks.
Tensor split_chunks(Tensor x, int64_t count) {
  Tensor parts = split_axis(x, "seq", {"chunks", count, {}}, {"seq", x.size("seq") / count, {}});
  std::string order = "chunks";
  for (const std::string& name : parts.type().names())
    if (name != "chunks") order += " " + name;
  return transpose(parts, order);
}

// The reverse, for ["chunks batch seq"].
Tensor join_chunks(Tensor parts) {
  return merge_axes(transpose(parts, "batch chunks seq"), "chunks", "seq", "seq");
}

}  // namespace

Embedding::Embedding(const HParams& p)
    : LayerOf(p.layer),
      scale_sqrt_depth_(p.scale_sqrt_depth),
      table_(weight("w", {{"vocab", p.vocab_size.get()}, {"embed", p.model_dims.get()}},
                    p.layer.init())) {}

Tensor Embedding::fprop(Tensor ids) const {
  return embedded(param(table_), ids, scale_sqrt_depth_);
}

BaseSoftmax::BaseSoftmax(const LayerHParams& p, const SoftmaxOptions& options,
                         std::vector<Axis> matrix, bool use_bias)
    : Layer(p), options_(options) {
  if (options.num_chunks < 1) fail("num_chunks is {}, expected at least 1", options.num_chunks);
  w_ = weight("w", std::move(matrix), p.init());
  if (use_bias) bias_ = weight("b", {parameters().at(w_.index).type.axis("vocab")}, zeros());
}

BaseSoftmax::Projection BaseSoftmax::projection() const {
  return {param(w_), bias_.valid() ? param(bias_) : Tensor()};
}

Tensor BaseSoftmax::embed_ids(Tensor ids) const {
  const LayerScope scope(*this);
  return lookup(std::move(ids));
}

Tensor BaseSoftmax::lookup(Tensor) const {
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
  x = place(x);  // All-gathers a residual that is split along its sequence.
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
      repeat("chunks", count, {}, {split_chunks(x, count), split_chunks(labels, count)},
             [&](Tensor, std::vector<Tensor>, std::vector<Tensor> slices) -> RepeatBody {
               const CrossEntropy chunk = whole_loss(weights, slices[0], slices[1]);
               return {{}, {chunk.loss, chunk.log_likelihood, chunk.correct}};
             });
  return {join_chunks(result.stacked[0]), join_chunks(result.stacked[1]),
          join_chunks(result.stacked[2])};
}

FullSoftmax::FullSoftmax(const HParams& p)
    : BaseSoftmax(p.layer, p.loss, {{"embed", p.model_dims.get()}, {"vocab", p.vocab_size.get()}},
                  p.use_bias) {}

SharedEmbeddingSoftmax::SharedEmbeddingSoftmax(const HParams& p)
    : BaseSoftmax(p.layer, p.loss, {{"vocab", p.vocab_size.get()}, {"embed", p.model_dims.get()}},
                  p.use_bias),
      scale_sqrt_depth_(p.scale_sqrt_depth) {}

Tensor SharedEmbeddingSoftmax::lookup(Tensor ids) const {
  return embedded(param(w_), ids, scale_sqrt_depth_);
}

}  // namespace tessera
