// SPDX-License-Identifier: Apache-2.0
#include "layers/attention/dot_product_attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/op_helpers.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/dropout.h"

namespace tessera {

REGISTER_TEMPLATE(SequenceLayer, DotProductAttention);

namespace {

// Attention that stores all its scores, for what the fused op (core/ops/attention.h) does not
// compute: dropout of probabilities, biases of scores, and cross-attention of split sequences.
struct ScoreOptions {
  double scale = 1.0;      // Multiplies q·k.
  double logit_cap = 0.0;  // If > 0: cap·tanh(score/cap).
  Tensor mask;             // bool["batch seq key_seq"] or a subset of these axes; invalid: none.
  Tensor bias;             // f32["seq key_seq heads"], maybe with batch; invalid: none.
  Tensor sinks;            // As in AttentionOptions.
  const ChildLayer<UnaryLayer>* dropout = nullptr;  // For probabilities; null: none.
};

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

// q["batch seq heads head_dim"], k and v with the axes batch, key_seq, kv_heads and head_dim in any
// order -> ["batch seq heads head_dim"]. Heads are grouped as in attention().
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

// The mask of attention() with these options between whole sequences; invalid if nothing is masked.
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

constexpr std::string_view kAttention = "attention";  // The role of queries, keys and values.

// The op's window, to both sides of a query.
AttentionOptions to_both_sides(AttentionOptions options) {
  options.mask = AttentionMask::kCausal;
  options.first_query = options.window - 1;
  options.window += options.first_query;
  return options;
}

// Repeats each key head of x["… kv_heads …"], so that as many devices as split the heads in
// attention have equal numbers. Query heads read the same keys as before. The repetition is local,
// and the all-to-all after it sends at most as many bytes as an all-gather of x would.
Tensor divisible_heads(const Tensor& x) {
  const Type inside = apply_rules(traced_rules().activations, traced_mesh(), x.type(), kAttention);
  const int64_t heads = x.size("kv_heads");
  const int64_t devices = traced_mesh().size_along(inside.axis("kv_heads").split);
  const int64_t copies = std::lcm(heads, devices) / heads;
  if (copies == 1) return x;
  if (trace_state().is_mesh_invariant)
    fail(
        "numerics=mesh_invariant: kv_heads={} cannot be divided among the {} devices that split "
        "heads in attention, and copies of a head have gradients that are added; choose rules that "
        "leave heads whole",
        heads, devices);
  const Tensor repeated =
      broadcast(x, {{"copies", copies, {}}}, "batch seq kv_heads copies head_dim");
  return merge_axes(repeated, "kv_heads", "copies", "kv_heads");
}

}  // namespace

DotProductAttention::DotProductAttention(const HParams& p)
    : SequenceLayer(p.layer),
      p_(p),
      head_dim_(head_dims(p.dims_per_head, p.model_dims.get(), p.num_heads.get())) {
  const int64_t heads = p.num_heads.get();
  const int64_t kv_heads = p.num_kv_heads.get_or(heads);
  if (heads % kv_heads != 0)
    fail(
        "num_kv_heads={} does not divide num_heads={}; query heads share key heads in equal groups",
        kv_heads, heads);
  if (p.combine_qkv && kv_heads != heads)
    fail("combine_qkv needs equal num_kv_heads and num_heads, got num_kv_heads={} and num_heads={}",
         kv_heads, heads);
  if (p.use_per_dim_scale && p.query_scale.has())
    fail("use_per_dim_scale learns the query's scale; leave query_scale unset");
  if (p.cross && (p.causal || p.combine_qkv || p.window.has() || p.rotary_tpl.has() ||
                  p.position_bias_tpl.has()))
    fail(
        "cross=true attends to all tokens of an encoder, at no distance: set causal=false, and "
        "neither combine_qkv, window, rotary_tpl nor position_bias_tpl");
  declare_projections(p);
  if (p.use_sinks && p.extra_logit.has())
    fail("use_sinks learns a score for each head; leave extra_logit unset");
  if (p.use_sinks) sinks_ = weight("sinks", {{"heads", heads}}, zeros());
  if (p.use_per_dim_scale)
    per_dim_scale_ = weight("per_dim_scale", {{"head_dim", head_dim_}}, zeros());
  dropout_ = child<UnaryLayer>("dropout", Dropout::HParams{.rate = p.dropout_rate});
  if (p.position_bias_tpl.has()) position_bias_ = child("position_bias", p.position_bias_tpl);
  if (p.rotary_tpl.has()) rotary_ = child("rotary", p.rotary_tpl);
  if (p.query_norm_tpl.has()) query_norm_ = child("query_norm", p.query_norm_tpl);
  if (p.key_norm_tpl.has()) key_norm_ = child("key_norm", p.key_norm_tpl);
}

void DotProductAttention::declare_projections(const HParams& p) {
  const WeightInit init = p.layer.init();
  const WeightInit query_init = p.query_init.get_or(init);
  const Axis embed{"embed", p.model_dims.get(), {}};
  const Axis heads{"heads", p.num_heads.get(), {}};
  const Axis kv_heads{"kv_heads", p.num_kv_heads.get_or(p.num_heads.get()), {}};
  const Axis head_dim{"head_dim", head_dim_, {}};
  const auto fans = [&](std::vector<std::string> in, std::vector<std::string> out) {
    return FanAxes{std::move(in), std::move(out), p.last_two_axes_fans};
  };
  if (p.combine_qkv) {
    const Axis qkv{"qkv", 3, {}};
    combined_ =
        weight("qkv", {embed, qkv, heads, head_dim}, init, fans({"embed"}, {"heads", "head_dim"}));
    if (p.use_bias) combined_bias_ = weight("qkv_bias", {qkv, heads, head_dim}, zeros());
  } else {
    query_ = weight("query", {embed, heads, head_dim}, query_init,
                    fans({"embed"}, {"heads", "head_dim"}));
    key_ =
        weight("key", {embed, kv_heads, head_dim}, init, fans({"embed"}, {"kv_heads", "head_dim"}));
    value_ = weight("value", {embed, kv_heads, head_dim}, init,
                    fans({"embed"}, {"kv_heads", "head_dim"}));
    if (p.use_bias) {
      query_bias_ = weight("query_bias", {heads, head_dim}, zeros());
      key_bias_ = weight("key_bias", {kv_heads, head_dim}, zeros());
      value_bias_ = weight("value_bias", {kv_heads, head_dim}, zeros());
    }
  }
  if (p.use_output_gate) {
    gate_ = weight("gate", {embed, heads, head_dim}, init, fans({"embed"}, {"heads", "head_dim"}));
    if (p.use_bias) gate_bias_ = weight("gate_bias", {heads, head_dim}, zeros());
  }
  output_ = weight("output", {heads, head_dim, embed}, p.output_init.get_or(init),
                   fans({"heads", "head_dim"}, {"embed"}));
  if (p.use_output_bias.get_or(p.use_bias)) output_bias_ = weight("output_bias", {embed}, zeros());
}

// One fused QKV weight, three GEMMs: slicing the weight is cheaper than slicing the output, except
// for the few tokens of a decoding step.
DotProductAttention::Heads DotProductAttention::combined_projection(Tensor x) const {
  if (FpropScope::current().cache() != nullptr) {
    Tensor all = place(product(x, param(combined_), over("embed")));
    if (combined_bias_.valid()) all = all + param_like(combined_bias_, all);
    const auto slice_of = [&](int64_t index) {
      return reduce_sum(slice(all, "qkv", index, index + 1), "qkv");
    };
    return {slice_of(0), rename(slice_of(1), "heads", "kv_heads"),
            rename(slice_of(2), "heads", "kv_heads")};
  }
  const auto project = [&](int64_t index) {
    Tensor y = place(product(x, param_slice(combined_, "qkv", index), over("embed")));
    if (combined_bias_.valid()) y = y + param_slice(combined_bias_, "qkv", index);
    return save_for_backward(y, "combined_qkv_proj");
  };
  return {project(0), rename(project(1), "heads", "kv_heads"),
          rename(project(2), "heads", "kv_heads")};
}

DotProductAttention::Heads DotProductAttention::separate_projections(Tensor x,
                                                                     Tensor source) const {
  const auto project = [&](Weight matrix, Weight bias, std::string_view name) {
    const Tensor& from = name == "query_proj" ? x : source;
    Tensor y = place(product(from, param(matrix), over("embed")));
    if (bias.valid()) y = y + param_like(bias, y);
    return save_for_backward(y, name);
  };
  return {project(query_, query_bias_, "query_proj"), project(key_, key_bias_, "key_proj"),
          project(value_, value_bias_, "value_proj")};
}

// Applies Pax's per-dim scale: softplus(s)/softplus(0)/√head_dim; s = 0 gives the usual scale.
Tensor DotProductAttention::scaled_query(Tensor query) const {
  const double unit = 1.0 / (std::numbers::ln2 * std::sqrt(static_cast<double>(head_dim_)));
  const Tensor factor = softplus(param_like(per_dim_scale_, query, DType::kF32)) * unit;
  return query * cast(factor, query.dtype());
}

// Applies rules of the role "attention", which exchange a split of the sequence for one of the
// heads, by all-to-alls (DeepSpeed-Ulysses; Jacobs et al., 2023). Without them a sequence that is
// split stays so, and keys are passed around (ring attention).
DotProductAttention::Heads DotProductAttention::as_attended(Heads heads) const {
  const auto& rules = traced_rules().activations;
  if (std::ranges::find(rules, kAttention, &AxisRule::role) != rules.end()) {
    heads.query = place(heads.query, kAttention);
    heads.key = place(divisible_heads(heads.key), kAttention);
    heads.value = place(divisible_heads(heads.value), kAttention);
  }
  return heads;
}

// The bias of each score, where queries have these positions i32["seq"] or ["batch seq"].
Tensor DotProductAttention::bias_of(const Tensor& query, const Tensor& positions,
                                    const Axis& key_seq) const {
  if (!position_bias_) return {};
  const Tensor distance = neg(positions - iota(key_seq));
  return position_bias_(distance, query.type().axis("heads"));
}

Tensor DotProductAttention::attend(const Heads& heads, const AttentionOptions& options) const {
  const Tensor key = rename(heads.key, "seq", "key_seq").named("key");
  const Tensor value = rename(heads.value, "seq", "key_seq").named("value");
  const Axis& seq = heads.query.type().axis("seq");
  const bool drops = p_.dropout_rate > 0 && FpropScope::current().mode() == Mode::kTrain;
  const bool sees_both_sides = options.window > 0 && !p_.causal;
  const bool needs_scores = drops || position_bias_ || (p_.cross && !seq.split.empty());
  if (!needs_scores)
    return attention(heads.query, key, value, sees_both_sides ? to_both_sides(options) : options);
  const Axis key_seq{"key_seq", key.size("key_seq"), {}};
  return attention_by_scores(heads.query, key, value,
                             {.scale = options.scale,
                              .logit_cap = options.logit_cap,
                              .mask = attention_mask(seq, key_seq, options),
                              .bias = bias_of(heads.query, iota(seq), key_seq),
                              .sinks = options.sinks,
                              .dropout = drops ? &dropout_ : nullptr});
}

// MQA replicates K/V; GQA shards K/V like Q.
Tensor DotProductAttention::attend_to_cache(const Heads& heads, const AttentionOptions& options,
                                            DecodeCache& cache) const {
  if (!p_.causal) fail_not_causal(path());
  const Axis& split = heads.query.type().axis("heads");
  const auto extended = [&](std::string_view name, const Tensor& rows) {
    return cache.extended(name, rows.size("kv_heads") > 1 ? shared_heads(rows, split) : rows);
  };
  const Tensor key = extended("key", heads.key), value = extended("value", heads.value);
  const Tensor starts = cache.starts_like(heads.query);
  if (!position_bias_)
    return cached_attention(heads.query, key, value, starts,
                            {.scale = options.scale,
                             .logit_cap = options.logit_cap,
                             .window = options.window,
                             .sinks = options.sinks});
  const Axis& key_seq = key.type().axis("key_seq");
  const Tensor positions = starts + iota(heads.query.type().axis("seq"));
  Tensor mask = less_equal(neg(positions - iota(key_seq)), constant(0.0, DType::kI32));
  if (options.window > 0)
    mask = logical_and(mask, less(positions - iota(key_seq),
                                  constant(static_cast<double>(options.window), DType::kI32)));
  return attention_by_scores(heads.query, key, value,
                             {.scale = options.scale,
                              .logit_cap = options.logit_cap,
                              .mask = mask,
                              .bias = bias_of(heads.query, positions, key_seq),
                              .sinks = options.sinks});
}

Tensor DotProductAttention::sinks_like(const Tensor& query) const {
  if (sinks_.valid()) return param_like(sinks_, query, DType::kF32);
  if (!p_.extra_logit.has()) return {};
  return constant(p_.extra_logit.get(), DType::kF32, {query.type().axis("heads")});
}

DotProductAttention::Heads DotProductAttention::projected(Tensor x,
                                                          const SequenceInfo& sequence) const {
  if (p_.cross && !sequence.encoded.valid())
    fail("{} attends to an encoder's tokens, but the model has no encoder; set encoder_tpl",
         path());
  const Tensor source = p_.cross ? place(rename(sequence.encoded, "key_seq", "seq")) : x;
  Heads heads = combined_.valid() ? combined_projection(x) : separate_projections(x, source);
  if (query_norm_) heads.query = query_norm_(heads.query);
  if (key_norm_) heads.key = key_norm_(heads.key);
  if (rotary_) {
    const Tensor positions = place(sequence.positions);
    heads.query = rotary_(heads.query, positions).named("query");
    heads.key = rotary_(heads.key, positions);
  }
  return heads;
}

AttentionOptions DotProductAttention::options_for(const Tensor& x,
                                                  const SequenceInfo& sequence) const {
  AttentionOptions options;
  options.mask = p_.causal ? AttentionMask::kCausal : AttentionMask::kFull;
  options.scale = per_dim_scale_.valid()
                      ? 1.0
                      : p_.query_scale.get_or(1.0 / std::sqrt(static_cast<double>(head_dim_)));
  options.logit_cap = p_.logit_cap;
  options.window = p_.window.get_or(0);
  if (!p_.causal && options.window >= x.size("seq")) options.window = 0;  // It hides no token.
  options.segment_ids = sequence.segment_ids;
  if (p_.cross) {
    options.key_segment_ids = sequence.encoded_segment_ids;
    if (!options.key_segment_ids.valid())
      options.segment_ids = {};
    else if (!options.segment_ids.valid())  // A row is one document, and its padding has the id 0.
      options.segment_ids =
          constant(1.0, DType::kI32, {x.type().axis("batch"), x.type().axis("seq")});
  }
  if (options.segment_ids.valid()) options.segment_ids = place(options.segment_ids, kAttention);
  return options;
}

Tensor DotProductAttention::fprop(Tensor x, const SequenceInfo& sequence) const {
  x = place(x);  // All-gathers a residual that is split along its sequence.
  Heads heads = projected(x, sequence);
  AttentionOptions options = options_for(x, sequence);
  if (per_dim_scale_.valid()) heads.query = scaled_query(heads.query);
  const Type outside = heads.query.type();
  heads = as_attended(std::move(heads));
  if (p_.cross && trace_state().is_mesh_invariant) {  // By the same op on all meshes.
    for (Tensor* const each : {&heads.query, &heads.key, &heads.value})
      *each = whole_along(*each, "seq");
    if (options.segment_ids.valid()) {
      options.segment_ids = whole_along(options.segment_ids, "seq");
      options.key_segment_ids = whole_along(options.key_segment_ids, "key_seq");
    }
  }
  options.sinks = sinks_like(heads.query);
  DecodeCache* const cache = FpropScope::current().cache();
  if (cache != nullptr && p_.cross) {
    heads.key = cache->kept("key", heads.key);
    heads.value = cache->kept("value", heads.value);
  }
  Tensor context =
      save_for_backward(cache != nullptr && !p_.cross ? attend_to_cache(heads, options, *cache)
                                                      : attend(heads, options),
                        "context");
  context = reshard(context, outside);
  if (gate_.valid()) {
    const Tensor gate = place(product(x, param(gate_), over("embed")));
    context = context * sigmoid(gate_bias_.valid() ? gate + param_like(gate_bias_, gate) : gate);
  }
  // If heads are split, the product is a partial sum: placing it reduces.
  const Tensor y = place(product(context, param(output_), over("heads head_dim")), "residual");
  return save_for_backward(output_bias_.valid() ? y + param_like(output_bias_, y) : y, "out_proj");
}

}  // namespace tessera
