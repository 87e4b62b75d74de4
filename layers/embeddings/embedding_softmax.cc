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
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/order.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "layers/summaries.h"

namespace tessera {

REGISTER_TEMPLATE(Embedding, Embedding);
REGISTER_TEMPLATE(TypeEmbedding, TypeEmbedding);
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

// Multiplies cross-entropies, -log p, by (1 - p)^gamma. p may be 1, where pow has no gradient.
Tensor focal_loss(const Tensor& losses, double gamma) {
  constexpr double kLeast = 1e-7;
  const Tensor missing = maximum(1.0 - exp(neg(losses)), constant(kLeast, DType::kF32));
  return pow(missing, constant(gamma, DType::kF32)) * losses;
}

// Joins chunks again, for tokens of this type.
Tensor join_chunks(const Tensor& chunks, const Type& tokens) {
  const Tensor parts = split_shards(chunks);
  const Tensor in_order = transpose(parts, order_with(parts, "chunks", "seq"));
  const Tensor joined = merge_axes(in_order, "chunks", "seq", "seq");
  const int64_t length = local_type(tokens, traced_mesh()).axis("seq").size;
  return join_shards(joined.size("seq") == length ? joined : slice(joined, "seq", 0, length));
}

using Tensors = std::vector<Tensor>;

// Returns what `compute` returns for `tokens` ["batch seq …"], called in a loop for chunks of
// `size` positions; 0: once for all. The results have the axes of tokens[1]. Gradients of a chunk
// do not depend on others, so the passes compute them in the same iteration
// (core/compile/remat/joint_loop.h): logits are neither kept nor recomputed.
Tensors in_chunks(int64_t size, const Tensors& tokens,
                  const std::function<Tensors(const Tensors& chunk)>& compute) {
  if (size == 0) return compute(tokens);
  Tensors chunks;
  for (const Tensor& each : tokens) chunks.push_back(split_chunks(each, size));
  const RepeatResult result = repeat("chunks", chunks[0].size("chunks"), {}, chunks,
                                     [&](Tensor, Tensors, Tensors slices) -> RepeatBody {
                                       return {{}, compute(slices)};
                                     });
  Tensors joined;
  for (const Tensor& each : result.stacked) joined.push_back(join_chunks(each, tokens[1].type()));
  return joined;
}

// Along "vocab".
Tensor log_softmax(const Tensor& logits) {
  const Tensor highest = reduced(reduce_max(stop_gradient(logits), "vocab"));
  const Tensor shifted = logits - highest;
  return shifted - log(reduced(reduce_sum(exp(shifted), "vocab")));
}

// The number of running sums of probabilities that are at most `uniform`.
Tensor drawn_labels(const Tensor& logits, const Tensor& uniform) {
  const Tensor scores = whole_along(logits, "vocab");
  const Tensor sums = cumulative_sum(exp(log_softmax(scores)), "vocab");
  const Tensor is_before = less_equal(sums, uniform);
  const Tensor one = constant(1.0, DType::kF32), none = constant(0.0, DType::kF32);
  const Tensor count = reduce_sum(where(is_before, one, none), "vocab");
  const auto last = static_cast<double>(scores.size("vocab") - 1);  // The sums may end below 1.
  return cast(minimum(count, constant(last, DType::kF32)), DType::kI32);
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
  if (options.focal_gamma > 0.0 && options.label_smoothing > 0.0)
    fail(
        "focal_gamma={} and label_smoothing={} exclude each other: the focal loss is that of one "
        "label; set one of them to 0",
        options.focal_gamma, options.label_smoothing);
  FanAxes fans{{matrix.front().name}, {matrix.back().name}};
  w_ = weight("w", std::move(matrix), p.init(), std::move(fans));
  if (use_bias) bias_ = weight("b", {parameters().at(w_.index).type.axis("vocab")}, zeros());
}

TypeEmbedding::TypeEmbedding(const HParams& p)
    : LayerOf(p.layer),
      table_(weight("w", {{"types", p.num_types}, {"embed", p.model_dims.get()}}, p.layer.init())) {
}

Tensor TypeEmbedding::fprop(Tensor x, Tensor types) const {
  if (types.valid())
    return x + place(gather(param(table_), place(types, "residual"), "types"), "residual");
  return x + reduce_sum(slice(param_like(table_, x), "types", 0, 1), "types");
}

BaseSoftmax::Projection BaseSoftmax::projection() const {
  return {param(w_), bias_.valid() ? param(bias_) : Tensor()};
}

Tensor BaseSoftmax::project(const Projection& weights, const Tensor& x) {
  const Tensor logits = place(einsum(x, weights.matrix, over("embed")));
  return weights.bias.valid() ? logits + weights.bias : logits;
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
  return capped(project(weights, multiplied(place(x))), dtypes().output);
}

Tensor BaseSoftmax::capped(const Tensor& logits, DType dtype) const {
  const Tensor scores = cast(logits, dtype);
  return options_.soft_cap > 0 ? tanh(scores / options_.soft_cap) * options_.soft_cap : scores;
}

CrossEntropy BaseSoftmax::label_loss(const Tensor& logits, const Tensor& labels) const {
  add_activation("logits", logits);
  const auto scores = [&](double z_loss) {
    return cross_entropy(logits, labels, "vocab",
                         {options_.label_smoothing, z_loss, options_.soft_cap});
  };
  CrossEntropy result = scores(options_.z_loss);
  if (options_.focal_gamma == 0.0) return result;
  const bool has_z_loss = options_.z_loss > 0.0;
  const Tensor plain = has_z_loss ? scores(0.0).loss : result.loss;
  const Tensor focal = focal_loss(plain, options_.focal_gamma);
  result.loss = has_z_loss ? result.loss - plain + focal : focal;
  return result;
}

CrossEntropy BaseSoftmax::scored(
    Tensor x, Tensor other,
    const std::function<CrossEntropy(const Tensor& logits, const Tensor& other)>& score) const {
  const LayerScope scope(*this);
  x = multiplied(place(x));  // All-gathers a residual that is split along its sequence.
  const Projection weights = projection();  // Outside the loop: cast and placed once.
  const Tensors terms = in_chunks(chunk_size(x), {x, other}, [&](const Tensors& chunk) -> Tensors {
    const CrossEntropy each = score(project(weights, chunk[0]), chunk[1]);
    return {each.loss, each.log_likelihood, each.correct};
  });
  return {terms[0], terms[1], terms[2]};
}

CrossEntropy BaseSoftmax::loss(Tensor x, Tensor labels) const {
  return scored(x, labels,
                [&](const Tensor& logits, const Tensor& own) { return label_loss(logits, own); });
}

CrossEntropy BaseSoftmax::drawn_loss(Tensor x, Tensor uniform) const {
  return scored(x, uniform, [&](const Tensor& logits, const Tensor& numbers) {
    const Tensor labels = drawn_labels(capped(stop_gradient(logits), DType::kF32), numbers);
    return cross_entropy(logits, labels, "vocab", {.soft_cap = options_.soft_cap});
  });
}

DistilledLoss BaseSoftmax::distilled_loss(Tensor x, Tensor labels, const BaseSoftmax& teacher,
                                          Tensor taught, double temperature) const {
  Projection teacher_weights;
  {
    const LayerScope scope(teacher);
    taught = teacher.multiplied(place(taught));
    teacher_weights = teacher.projection();
  }
  const LayerScope scope(*this);
  x = multiplied(place(x));
  const Projection weights = projection();
  const Tensors terms =
      in_chunks(chunk_size(x), {x, labels, taught}, [&](const Tensors& chunk) -> Tensors {
        const Tensor logits = project(weights, chunk[0]);
        const CrossEntropy each = label_loss(logits, chunk[1]);
        const auto log_likelihoods = [&](const BaseSoftmax& softmax, const Tensor& scores) {
          return log_softmax(softmax.capped(scores, DType::kF32) / temperature);
        };
        const Tensor expected =
            stop_gradient(log_likelihoods(teacher, project(teacher_weights, chunk[2])));
        const Tensor surplus = expected - log_likelihoods(*this, logits);
        return {each.loss, each.log_likelihood, each.correct,
                reduced(reduce_sum(exp(expected) * surplus, "vocab"))};
      });
  return {{terms[0], terms[1], terms[2]}, terms[3]};
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

FullSoftmax::FullSoftmax(const HParams& p)
    : BaseSoftmax(p.layer, p.loss, {{"embed", p.model_dims.get()}, {"vocab", p.vocab_size.get()}},
                  p.use_bias) {}

SharedEmbeddingSoftmax::SharedEmbeddingSoftmax(const HParams& p)
    : BaseSoftmax(p.layer, p.loss, {{"vocab", p.vocab_size.get()}, {"embed", p.model_dims.get()}},
                  p.use_bias),
      scale_(row_scale(p)) {}

Tensor SharedEmbeddingSoftmax::lookup(Tensor ids) const { return embedded(param(w_), ids, scale_); }

}  // namespace tessera
