// SPDX-License-Identifier: Apache-2.0
#include "layers/embeddings/embedding_softmax.h"

#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/layout.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "layers/summaries.h"

namespace tessera {

REGISTER_TEMPLATE(Embedding, Embedding);
REGISTER_TEMPLATE(BaseSoftmax, FullSoftmax);
REGISTER_TEMPLATE(BaseSoftmax, SharedEmbeddingSoftmax);

namespace {

// Returns the factor of the rows of a table.
template <typename P>
double row_scale(const P& p) {
  return p.multiplier *
         (p.scale_sqrt_depth ? std::sqrt(static_cast<double>(p.model_dims.get())) : 1.0);
}

// Returns rows of table["vocab embed"], multiplied by `factor`.
Tensor embedded(Tensor table, Tensor ids, double factor) {
  const Tensor rows = place(gather(table, ids, "vocab"), "residual");
  return factor == 1.0 ? rows : scale(rows, factor);
}

Tensor project(Tensor matrix, Tensor bias, Tensor x) {
  const Tensor logits = place(einsum(x, matrix, over("embed")));
  return bias.valid() ? logits + bias : logits;
}

// Returns the axes of x with `axis` moved before the axis `next`; "": to the front.
std::string order_with(const Tensor& x, std::string_view axis, std::string_view next) {
  std::string order(next.empty() ? axis : "");
  for (const std::string& name : x.type().names()) {
    if (name == axis) continue;
    if (name == next) order += fmt::format(" {}", axis);
    order += " " + name;
  }
  return order;
}

// Reshapes x["batch seq/ctx …"] -> ["batch shards/ctx seq …"]: a device's part of a sequence is an
// axis of its own, which can be cut without communication. Returns x itself if seq is not split.
Tensor split_shards(const Tensor& x) {
  const Axis& seq = x.type().axis("seq");
  if (seq.split.empty()) return x;
  const int64_t shards = traced_mesh().size_along(seq.split);
  return split_axis(x, "seq", {"shards", shards, seq.split}, {"seq", seq.size / shards, {}});
}

Tensor join_shards(const Tensor& x) {
  return x.has("shards") ? merge_axes(x, "shards", "seq", "seq") : x;
}

// Cuts ["batch seq …"] -> ["chunks batch seq …"]: each device's part of the sequence is cut into
// consecutive chunks of `size` positions, the last filled with zeros.
Tensor split_chunks(Tensor x, int64_t size) {
  x = split_shards(x);
  const int64_t count = (x.size("seq") + size - 1) / size;
  if (const int64_t missing = count * size - x.size("seq"); missing > 0)
    x = pad(x, "seq", 0, missing);
  const Tensor parts = split_axis(x, "seq", {"chunks", count, {}}, {"seq", size, {}});
  return join_shards(transpose(parts, order_with(parts, "chunks", "")));
}

// Joins chunks again, for tokens of this type.
Tensor join_chunks(const Tensor& chunks, const Type& tokens) {
  const Tensor parts = split_shards(chunks);
  const Tensor in_order = transpose(parts, order_with(parts, "chunks", "seq"));
  const Tensor joined = merge_axes(in_order, "chunks", "seq", "seq");
  const int64_t length = local_type(tokens, traced_mesh()).axis("seq").size;
  return join_shards(joined.size("seq") == length ? joined : slice(joined, "seq", 0, length));
}

}  // namespace

Embedding::Embedding(const HParams& p)
    : LayerOf(p.layer),
      scale_(row_scale(p)),
      table_(weight("w", {{"vocab", p.vocab_size.get()}, {"embed", p.model_dims.get()}},
                    p.layer.init(), {{"vocab"}, {"embed"}})) {}

Tensor Embedding::fprop(Tensor ids) const { return embedded(param(table_), ids, scale_); }

BaseSoftmax::BaseSoftmax(const LayerHParams& p, const SoftmaxOptions& options,
                         std::vector<Axis> matrix, bool use_bias)
    : Layer(p), options_(options) {
  FanAxes fans{{matrix.front().name}, {matrix.back().name}};
  w_ = weight("w", std::move(matrix), p.init(), std::move(fans));
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

// The logits are linear in x, but for their bias.
Tensor BaseSoftmax::multiplied(const Tensor& x) const {
  return options_.multiplier == 1.0 ? x : scale(x, options_.multiplier);
}

Tensor BaseSoftmax::logits(Tensor x) const {
  const LayerScope scope(*this);
  const Projection weights = projection();
  Tensor scores =
      cast(project(weights.matrix, weights.bias, multiplied(place(x))), dtypes().output);
  if (options_.soft_cap > 0) scores = tanh(scores / options_.soft_cap) * options_.soft_cap;
  return scores;
}

CrossEntropy BaseSoftmax::loss(Tensor x, Tensor labels) const {
  const LayerScope scope(*this);
  x = multiplied(place(x));  // All-gathers a residual that is split along its sequence.
  const Projection weights = projection();  // Outside the loop: cast and placed once.
  const int64_t size = chunk_size(x);
  return size == 0 ? whole_loss(weights, x, labels) : chunked_loss(weights, x, labels, size);
}

// Returns the positions of a device's part of a sequence in each chunk; 0: no chunks. All rows of a
// device are in each chunk, so their layout stays.
int64_t BaseSoftmax::chunk_size(const Tensor& x) const {
  if (options_.chunk_tokens == 0 || !x.has("seq")) return 0;
  if (trace_state().is_mesh_invariant) return 0;  // Chunks of a device depend on the mesh.
  const Type local = local_type(x.type(), traced_mesh());
  int64_t tokens = 1;  // Tokens of one device.
  for (const Axis& axis : local.axes)
    if (axis.name != "embed") tokens *= axis.size;
  const int64_t chunks = (tokens + options_.chunk_tokens - 1) / options_.chunk_tokens;
  return chunks <= 1 ? 0 : (local.axis("seq").size + chunks - 1) / chunks;
}

CrossEntropy BaseSoftmax::whole_loss(const Projection& weights, Tensor x, Tensor labels) const {
  const Tensor logits = project(weights.matrix, weights.bias, x);
  add_activation("logits", logits);
  return cross_entropy(logits, labels, "vocab",
                       {options_.label_smoothing, options_.z_loss, options_.soft_cap});
}

// Loops over chunks. Gradients of a chunk do not depend on others, so the passes compute them in
// the same iteration (core/compile/remat/joint_loop.h): logits are neither kept nor recomputed.
CrossEntropy BaseSoftmax::chunked_loss(const Projection& weights, Tensor x, Tensor labels,
                                       int64_t size) const {
  const Tensor hidden = split_chunks(x, size), targets = split_chunks(labels, size);
  const RepeatResult result =
      repeat("chunks", hidden.size("chunks"), {}, {hidden, targets},
             [&](Tensor, std::vector<Tensor>, std::vector<Tensor> slices) -> RepeatBody {
               const CrossEntropy chunk = whole_loss(weights, slices[0], slices[1]);
               return {{}, {chunk.loss, chunk.log_likelihood, chunk.correct}};
             });
  const auto joined = [&](size_t i) { return join_chunks(result.stacked[i], labels.type()); };
  return {joined(0), joined(1), joined(2)};
}

FullSoftmax::FullSoftmax(const HParams& p)
    : BaseSoftmax(p.layer, p.loss, {{"embed", p.model_dims.get()}, {"vocab", p.vocab_size.get()}},
                  p.use_bias) {}

SharedEmbeddingSoftmax::SharedEmbeddingSoftmax(const HParams& p)
    : BaseSoftmax(p.layer, p.loss, {{"vocab", p.vocab_size.get()}, {"embed", p.model_dims.get()}},
                  p.use_bias),
      scale_(row_scale(p)) {}

Tensor SharedEmbeddingSoftmax::lookup(Tensor ids) const { return embedded(param(w_), ids, scale_); }

}  // namespace tessera
