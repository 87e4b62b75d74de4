// SPDX-License-Identifier: Apache-2.0
#include "layers/attention/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/ops/attention.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/norms/norms.h"

namespace tessera {

REGISTER_TEMPLATE(SequenceLayer, LatentAttention);

namespace {

constexpr std::string_view kRole = "attention";  // The role of queries, keys and values.
constexpr std::string_view kKvLatent = "kv_latent", kQLatent = "q_latent", kLatent = "latent";

void check_rotary(const LatentAttention::HParams& p) {
  if (p.rope_dims % 2 != 0)
    fail(
        "LatentAttention: rope_dims is {}, expected an even number, since dimensions are rotated "
        "in pairs, or 0 for no rotary part",
        p.rope_dims);
  if (p.rope_dims > 0 && !p.rotary_tpl.has())
    fail("LatentAttention: rope_dims is {}, but rotary_tpl is unset; set it, or rope_dims=0",
         p.rope_dims);
  if (p.rope_source == RotarySource::kLatents && !p.q_lora_rank.has())
    fail(
        "LatentAttention: rope_source=latents needs the latents of keys and of queries, but "
        "q_lora_rank is unset; set it, or rope_source=input");
}

Tensor padded(const Tensor& x, int64_t width) {
  const int64_t missing = width - x.size("head_dim");
  return missing == 0 ? x : pad(x, "head_dim", 0, missing);
}

// Writes x["batch seq axis"] as rows of a cache with one head, and returns ["batch seq axis"] of
// all cached tokens.
Tensor through_cache(DecodeCache& cache, std::string_view name, const Tensor& x,
                     std::string_view axis) {
  const Tensor rows =
      split_axis(whole_along(x, axis), axis, {"kv_heads", 1, {}}, {"head_dim", x.size(axis), {}});
  const Tensor all = reduce_sum(cache.extended(name, rows), "kv_heads");
  const Tensor named = rename(all, "key_seq", "seq");
  return axis == "head_dim" ? named : rename(named, "head_dim", axis);
}

}  // namespace

LatentAttention::LatentAttention(const HParams& p)
    : SequenceLayer(p.layer),
      p_(p),
      head_dim_(head_dims(p.dims_per_head, p.model_dims.get(), p.num_heads.get())) {
  value_dim_ = p.value_dims_per_head.get_or(head_dim_);
  check_rotary(p);
  scale_ = p.query_scale.get_or(1.0 / std::sqrt(static_cast<double>(head_dim_ + p.rope_dims)));

  const Axis embed{"embed", p.model_dims.get(), {}}, heads{"heads", p.num_heads.get(), {}};
  declare_keys(embed);
  declare_queries(embed);
  if (p.rope_dims > 0) rotary_ = child("rotary", p.rotary_tpl);
  output_ = weight("output", {heads, {"head_dim", value_dim_, {}}, embed},
                   p.output_init.get_or(p.layer.init()), {{"heads", "head_dim"}, {"embed"}});
  if (p.use_bias) output_bias_ = weight("output_bias", {embed}, zeros());
}

LatentAttention::Projection LatentAttention::projection(std::string_view name, const Axis& from,
                                                        std::vector<Axis> to) {
  FanAxes fans{{from.name}, {}};
  std::vector<Axis> axes = {from};
  for (const Axis& axis : to) {
    fans.out.push_back(axis.name);
    axes.push_back(axis);
  }
  Projection result{.from = from.name};
  result.matrix = weight(name, std::move(axes), p_.layer.init(), std::move(fans));
  if (p_.use_bias) result.bias = weight(fmt::format("{}_bias", name), std::move(to), zeros());
  return result;
}

Template<UnaryLayer> LatentAttention::norm_of(const Axis& latent) const {
  return RmsNorm::HParams{.model_dims = latent.size,
                          .axis = latent.name,
                          .epsilon = p_.norm_epsilon,
                          .layer = {.dtypes = p_.layer.dtypes}};
}

void LatentAttention::declare_keys(const Axis& embed) {
  const Axis latent{std::string(kKvLatent), p_.kv_lora_rank.get(), {}};
  const Axis kv_heads{"kv_heads", p_.num_heads.get(), {}};
  kv_down_ = projection("kv_down", embed, {latent});
  if (p_.normalize_latents) kv_norm_ = child<UnaryLayer>("kv_norm", norm_of(latent));
  key_ = projection("key", latent, {kv_heads, {"head_dim", head_dim_, {}}});
  value_ = projection("value", latent, {kv_heads, {"head_dim", value_dim_, {}}});
  if (p_.rope_dims == 0) return;
  const bool from_latents = p_.rope_source == RotarySource::kLatents;
  const int64_t both = p_.kv_lora_rank.get() + p_.q_lora_rank.get_or(0);
  key_rope_ = projection("key_rope", from_latents ? Axis{std::string(kLatent), both, {}} : embed,
                         {{"head_dim", p_.rope_dims, {}}});
}

void LatentAttention::declare_queries(const Axis& embed) {
  const Axis heads{"heads", p_.num_heads.get(), {}};
  Axis from = embed;
  if (p_.q_lora_rank.has()) {
    from = {std::string(kQLatent), p_.q_lora_rank.get(), {}};
    q_down_ = projection("q_down", embed, {from});
    if (p_.normalize_latents) q_norm_ = child<UnaryLayer>("q_norm", norm_of(from));
  }
  query_ = projection("query", from, {heads, {"head_dim", head_dim_, {}}});
  if (p_.rope_dims == 0) return;
  if (p_.rope_source == RotarySource::kLatents)
    from = {std::string(kLatent), p_.kv_lora_rank.get() + p_.q_lora_rank.get(), {}};
  query_rope_ = projection("query_rope", from, {heads, {"head_dim", p_.rope_dims, {}}});
}

Tensor LatentAttention::project(const Tensor& x, const Projection& by,
                                std::string_view name) const {
  Tensor y = place(product(x, param(by.matrix), over(by.from)));
  if (by.bias.valid()) y = y + param_like(by.bias, y);
  return save_for_backward(y, name);
}

LatentAttention::Rotary LatentAttention::rotary_parts(const Tensor& x, const Tensor& kv_latent,
                                                      const Tensor& query_input,
                                                      const SequenceInfo& sequence) const {
  if (p_.rope_dims == 0) return {};
  Tensor of_query = query_input, of_key = x;
  if (p_.rope_source == RotarySource::kLatents) {
    of_key = concat({rename(whole_along(kv_latent, kKvLatent), kKvLatent, kLatent),
                     rename(whole_along(query_input, kQLatent), kQLatent, kLatent)},
                    kLatent);
    of_query = of_key;
  }
  const Tensor positions = place(sequence.positions);
  return {rotary_(project(of_query, query_rope_, "query_rope_proj"), positions),
          rotary_(project(of_key, key_rope_, "key_rope_proj"), positions)};
}

// Returns the keys and values of all heads.
LatentAttention::Heads LatentAttention::expanded(const Tensor& kv_latent,
                                                 const Tensor& rotary_key) const {
  Heads heads{project(kv_latent, key_, "key_proj"), project(kv_latent, value_, "value_proj")};
  if (!rotary_key.valid()) return heads;
  const Tensor shared =
      broadcast(rotary_key, {heads.key.type().axis("kv_heads")}, "batch seq kv_heads head_dim");
  heads.key = concat({heads.key, shared}, "head_dim");
  return heads;
}

Tensor LatentAttention::attend(const Tensor& query, const Heads& heads,
                               const SequenceInfo& sequence) const {
  AttentionOptions options;
  options.mask = p_.causal ? AttentionMask::kCausal : AttentionMask::kFull;
  options.scale = scale_;
  if (sequence.segment_ids.valid()) options.segment_ids = place(sequence.segment_ids, kRole);
  const int64_t width = std::max(query.size("head_dim"), value_dim_);
  const auto as_keys = [&](const Tensor& x, std::string_view name) {
    return rename(padded(place(x, kRole), width), "seq", "key_seq").named(name);
  };
  return attention(padded(place(query, kRole), width), as_keys(heads.key, "key"),
                   as_keys(heads.value, "value"), options);
}

Tensor LatentAttention::attend_to_cache(const Tensor& query, const Tensor& kv_latent,
                                        const Tensor& rotary_key, DecodeCache& cache) const {
  if (!p_.causal) fail_not_causal(path());
  const Tensor latents = through_cache(cache, "latent", kv_latent, kKvLatent);
  Tensor rotary_keys;
  if (rotary_key.valid()) rotary_keys = through_cache(cache, "rotary_key", rotary_key, "head_dim");
  const Heads heads = expanded(place(latents), rotary_keys);
  const int64_t width = std::max(query.size("head_dim"), value_dim_);
  const auto as_cached = [&](const Tensor& x) {
    return transpose(rename(padded(x, width), "seq", "key_seq"), "batch kv_heads key_seq head_dim");
  };
  return cached_attention(padded(query, width), as_cached(heads.key), as_cached(heads.value),
                          cache.starts_like(query), {.scale = scale_});
}

Tensor LatentAttention::fprop(Tensor x, const SequenceInfo& sequence) const {
  x = place(x);  // All-gathers a residual that is split along its sequence.
  Tensor kv_latent = project(x, kv_down_, "kv_latent_proj");
  if (kv_norm_) kv_latent = kv_norm_(kv_latent);
  Tensor query_input = x;
  if (q_down_.matrix.valid()) query_input = project(x, q_down_, "q_latent_proj");
  if (q_norm_) query_input = q_norm_(query_input);
  Tensor query = project(query_input, query_, "query_proj");
  const Rotary rotary = rotary_parts(x, kv_latent, query_input, sequence);
  if (rotary.query.valid()) query = concat({query, rotary.query}, "head_dim").named("query");
  DecodeCache* const cache = FpropScope::current().cache();
  Tensor context = cache != nullptr ? attend_to_cache(query, kv_latent, rotary.key, *cache)
                                    : attend(query, expanded(kv_latent, rotary.key), sequence);
  if (context.size("head_dim") != value_dim_) context = slice(context, "head_dim", 0, value_dim_);
  context = save_for_backward(context, "context");
  // The layout of the queries, if rules of the role "attention" change it.
  Type outside = context.type();
  for (Axis& axis : outside.axes) axis.split = query.type().axis(axis.name).split;
  context = reshard(context, outside);
  // If heads are split, the product is a partial sum: placing it reduces.
  const Tensor y = place(product(context, param(output_), over("heads head_dim")), "residual");
  return save_for_backward(output_bias_.valid() ? y + param_like(output_bias_, y) : y, "out_proj");
}

}  // namespace tessera
