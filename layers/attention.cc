// SPDX-License-Identifier: Apache-2.0
#include "layers/attention.h"

#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "core/ops/cache.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/ops/shared_heads.h"
#include "layers/attention_scores.h"
#include "layers/dropout.h"
#include "layers/fprop_scope.h"

namespace tessera {

template class HolderOf<SequenceLayer, DotProductAttention::HParams>;

namespace {

const TemplateRegistrar<SequenceLayer, DotProductAttention> kRegisterAttention;

int64_t head_dim_of(const DotProductAttention::HParams& p) {
  if (p.dims_per_head.has()) return p.dims_per_head.get();
  const int64_t dims = p.model_dims.get(), heads = p.num_heads.get();
  if (heads < 1 || dims % heads != 0)
    fail("num_heads={} does not divide model_dims={}; change one, or set dims_per_head", heads,
         dims);
  return dims / heads;
}

}  // namespace

DotProductAttention::DotProductAttention(const HParams& p)
    : SequenceLayer(p.dtypes, p.rules), p_(p), head_dim_(head_dim_of(p)) {
  const int64_t heads = p.num_heads.get();
  const int64_t kv_heads = p.num_kv_heads.get_or(heads);
  if (kv_heads < 1 || heads % kv_heads != 0)
    fail("num_kv_heads={} does not divide num_heads={}; every key head serves as many query heads",
         kv_heads, heads);
  if (p.combine_qkv && kv_heads != heads)
    fail("combine_qkv needs as many key as query heads, got num_kv_heads={} and num_heads={}",
         kv_heads, heads);
  if (p.use_per_dim_scale && p.query_scale.has())
    fail("use_per_dim_scale learns the query's scale; leave query_scale unset");
  declare_projections(p);
  if (p.use_per_dim_scale)
    per_dim_scale_ = weight("per_dim_scale", {{"head_dim", head_dim_}}, zeros());
  dropout_ = child("dropout", Template<UnaryLayer>(Dropout::HParams{.rate = p.dropout_rate}));
  if (p.rotary_tpl.has()) rotary_ = child("rotary", p.rotary_tpl);
  if (p.query_norm_tpl.has()) query_norm_ = child("query_norm", p.query_norm_tpl);
  if (p.key_norm_tpl.has()) key_norm_ = child("key_norm", p.key_norm_tpl);
}

void DotProductAttention::declare_projections(const HParams& p) {
  const WeightInit init = p.params_init.get_or(WeightInit{});
  const WeightInit query_init = p.query_init.get_or(init);
  const Axis embed{"embed", p.model_dims.get(), {}};
  const Axis heads{"heads", p.num_heads.get(), {}};
  const Axis kv_heads{"kv_heads", p.num_kv_heads.get_or(p.num_heads.get()), {}};
  const Axis head_dim{"head_dim", head_dim_, {}};
  const auto fans = [&](std::vector<std::string> in, std::vector<std::string> out) {
    return p.last_two_axes_fans ? FanAxes{} : FanAxes{std::move(in), std::move(out)};
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
  output_ = weight("output", {heads, head_dim, embed}, p.output_init.get_or(init),
                   fans({"heads", "head_dim"}, {"embed"}));
  if (p.use_output_bias.get_or(p.use_bias)) output_bias_ = weight("output_bias", {embed}, zeros());
}

// The weight is one; the products are three, since parting it costs less than parting their result:
// but for the few tokens of a decoding step.
DotProductAttention::Heads DotProductAttention::combined_projection(Tensor x) const {
  if (FpropScope::current().cache() != nullptr) {
    Tensor all = place(einsum(x, param(combined_), over("embed")));
    if (combined_bias_.valid()) all = all + param_like(combined_bias_, all);
    const auto part = [&](int64_t index) {
      return reduce_sum(slice(all, "qkv", index, index + 1), "qkv");
    };
    return {part(0), rename(part(1), "heads", "kv_heads"), rename(part(2), "heads", "kv_heads")};
  }
  const auto project = [&](int64_t index) {
    Tensor y = place(einsum(x, param_part(combined_, "qkv", index), over("embed")));
    if (combined_bias_.valid()) y = y + param_part(combined_bias_, "qkv", index);
    return save_for_backward(y, "combined_qkv_proj");
  };
  return {project(0), rename(project(1), "heads", "kv_heads"),
          rename(project(2), "heads", "kv_heads")};
}

DotProductAttention::Heads DotProductAttention::separate_projections(Tensor x) const {
  const auto project = [&](Weight matrix, Weight bias, std::string_view name) {
    Tensor y = place(einsum(x, param(matrix), over("embed")));
    if (bias.valid()) y = y + param_like(bias, y);
    return save_for_backward(y, name);
  };
  return {project(query_, query_bias_, "query_proj"), project(key_, key_bias_, "key_proj"),
          project(value_, value_bias_, "value_proj")};
}

// Pax's per-dim scale: softplus(s)/softplus(0)/√head_dim, so that s = 0 is the usual scale.
Tensor DotProductAttention::scaled_query(Tensor query) const {
  const double unit = 1.0 / (std::numbers::ln2 * std::sqrt(static_cast<double>(head_dim_)));
  const Tensor factor = softplus(param_like(per_dim_scale_, query, DType::kF32)) * unit;
  return query * cast(factor, query.dtype());
}

Tensor DotProductAttention::attend(const Heads& heads, const AttentionOptions& options) const {
  const Tensor key = rename(heads.key, "seq", "key_seq").named("key");
  const Tensor value = rename(heads.value, "seq", "key_seq").named("value");
  const bool drops = p_.dropout_rate > 0 && FpropScope::current().mode() == Mode::kTrain;
  return drops ? attention_by_scores(heads.query, key, value, options, *dropout_)
               : attention(heads.query, key, value, options);
}

// One key head serves query heads on all devices as it is; several are given out, and kept so.
Tensor DotProductAttention::attend_to_cache(const Heads& heads, const AttentionOptions& options,
                                            DecodeCache& cache) const {
  if (!p_.causal)
    fail(
        "{} is not causal: what it computes of a token changes with those that follow, so it "
        "cannot decode token by token; set causal=true",
        path());
  const Axis& split = heads.query.type().axis("heads");
  const auto kept = [&](std::string_view name, const Tensor& rows) {
    return cache.extended(name, rows.size("kv_heads") > 1 ? shared_heads(rows, split) : rows);
  };
  const Tensor key = kept("key", heads.key), value = kept("value", heads.value);
  return cached_attention(heads.query, key, value, cache.starts_beside(heads.query),
                          {.scale = options.scale, .logit_cap = options.logit_cap});
}

Tensor DotProductAttention::fprop(Tensor x, const SequenceInfo& sequence) const {
  const LayerScope scope(*this);
  x = place(x);  // Gathers a residual that is split along its sequence.
  Heads heads = combined_.valid() ? combined_projection(x) : separate_projections(x);
  if (query_norm_) heads.query = query_norm_->fprop(heads.query);
  if (key_norm_) heads.key = key_norm_->fprop(heads.key);
  if (rotary_) {
    heads.query = rotary_->fprop(heads.query, sequence.positions).named("query");
    heads.key = rotary_->fprop(heads.key, sequence.positions);
  }
  AttentionOptions options;
  options.mask = p_.causal ? AttentionMask::kCausal : AttentionMask::kFull;
  options.logit_cap = p_.logit_cap;
  options.segment_ids = sequence.segment_ids;
  if (per_dim_scale_.valid()) {
    heads.query = scaled_query(heads.query);
  } else {
    options.scale = p_.query_scale.get_or(1.0 / std::sqrt(static_cast<double>(head_dim_)));
  }
  DecodeCache* const cache = FpropScope::current().cache();
  const Tensor context = save_for_backward(
      cache != nullptr ? attend_to_cache(heads, options, *cache) : attend(heads, options),
      "context");
  // A sum over split heads is still partial here: placing it reduces.
  const Tensor y = place(einsum(context, param(output_), over("heads head_dim")), "residual");
  return save_for_backward(output_bias_.valid() ? y + param_like(output_bias_, y) : y, "out_proj");
}

}  // namespace tessera
