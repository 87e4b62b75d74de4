// SPDX-License-Identifier: Apache-2.0
#include "layers/attention/gated_delta_net.h"

#include <cmath>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/rules.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/linear_recurrence.h"
#include "core/ops/norm.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/norms/norms.h"

namespace tessera {

REGISTER_TEMPLATE(SequenceLayer, GatedDeltaNet);

namespace {

constexpr std::string_view kByHead = "attention";  // The role of queries, keys and values.
constexpr double kLengthEpsilon = 1e-6;            // Added to the squared length of a key.

// x["batch seq …"] with all tokens of a row on each device.
Tensor with_whole_rows(const Tensor& x) {
  Type type = apply_rules(traced_rules().activations, traced_mesh(), x.type(), kByHead);
  type.axes[1].split.clear();
  return reshard(x, type);
}

// x["batch seq kv_heads group …"] -> ["batch seq heads …"], with whole rows.
Tensor by_head(const Tensor& x) {
  return with_whole_rows(merge_axes(x, "kv_heads", "group", "heads"));
}

// x / |x| over key_dim.
Tensor of_length_one(const Tensor& x) {
  const auto size = static_cast<double>(x.size("key_dim"));
  return rms_norm(x, {}, "key_dim", kLengthEpsilon / size) / std::sqrt(size);
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const HParams& p) : SequenceLayer(p.layer), p_(p) {
  const int64_t num_heads = p.num_heads.get(), dims = p.model_dims.get();
  p_.num_kv_heads = p.num_kv_heads.get_or(num_heads);
  const int64_t num_kv_heads = p_.num_kv_heads.get();
  if (num_heads % num_kv_heads != 0)
    fail("num_kv_heads={} does not divide num_heads={}; heads share keys in equal groups",
         num_kv_heads, num_heads);
  key_dim_ = head_dims(p.dims_per_head, dims, num_heads);
  const Axis embed{"embed", dims, {}}, kv_heads{"kv_heads", num_kv_heads, {}},
      group{"group", num_heads / num_kv_heads, {}}, heads{"heads", num_heads, {}},
      value_dim{"value_dim", p.value_dims_per_head.get_or(key_dim_), {}};
  const WeightInit init = p.layer.init();
  query_ = channel("query", {kv_heads, {"key_dim", key_dim_, {}}});
  key_ = channel("key", {kv_heads, {"key_dim", key_dim_, {}}});
  value_ = channel("value", {kv_heads, group, value_dim});
  gate_ = weight("gate", {embed, kv_heads, group, value_dim}, init,
                 {{"embed"}, {"kv_heads", "group", "value_dim"}});
  for (const auto& [name, matrix] : {std::pair("decay", &decay_), std::pair("beta", &beta_)})
    *matrix = weight(name, {embed, kv_heads, group}, init, {{"embed"}, {"kv_heads", "group"}});
  // Rates of decay from 1/16 to 16, evenly by their logarithm.
  log_rate_ = weight("log_rate", {heads}, {InitKind::kUniform, std::log(16.0)});
  decay_bias_ = weight("decay_bias", {heads}, ones());
  norm_ = child<UnaryLayer>("norm", RmsNorm::HParams{.model_dims = value_dim.size,
                                                     .axis = value_dim.name,
                                                     .epsilon = p.norm_epsilon,
                                                     .layer = {.dtypes = p.layer.dtypes}});
  output_ = weight("output", {heads, value_dim, embed}, p.output_init.get_or(init),
                   {{"heads", "value_dim"}, {"embed"}});
}

GatedDeltaNet::Channel GatedDeltaNet::channel(std::string_view name,
                                              const std::vector<Axis>& axes) {
  std::vector<Axis> matrix = {{"embed", p_.model_dims.get(), {}}},
                    kernel = {{"kernel", p_.conv_width, {}}};
  FanAxes fans{{"embed"}, {}};
  for (const Axis& axis : axes) {
    matrix.push_back(axis);
    kernel.push_back(axis);
    fans.out.push_back(axis.name);
  }
  return {std::string(name), weight(name, matrix, p_.layer.init(), fans),
          weight(fmt::format("{}_conv", name), kernel,
                 {InitKind::kUniformUnitScaling, 1.0 / std::sqrt(3.0)}, {{"kernel"}, {}})};
}

// x["batch seq …"] after the conv_width - 1 tokens before it: of the cache, or zeros.
Tensor GatedDeltaNet::with_history(const Tensor& x, std::string_view name) const {
  const int64_t before = p_.conv_width - 1;
  DecodeCache* const cache = FpropScope::current().cache();
  if (cache == nullptr) return pad(x, "seq", before, 0);
  const Tensor tokens = mask(x, cache->token_mask(x));
  if (before == 0) return tokens;
  Type type = x.type();
  type.axes[1].size = before;
  Tensor all;
  cache->updated(fmt::format("{}_history", name), type, [&](const Tensor& earlier) {
    all = concat({earlier, tokens}, "seq");
    // The tokens up to each row's last: its own number is `before` more in `all`.
    const Tensor first = cache->last_like(x) + constant(1.0, DType::kI32);
    return rename(gather(all, first + iota({"slots", before, {}}), "seq"), "slots", "seq");
  });
  return all;
}

// The projection of x, after the convolution, the sum of kernel[j]·x[t - (conv_width - 1) + j] over
// the tokens of a segment, and SiLU: ["batch seq heads …"].
Tensor GatedDeltaNet::convolved(const Tensor& x, const Channel& channel,
                                const Tensor& segment_ids) const {
  const Tensor projected =
      save_for_backward(place(product(x, param(channel.matrix), over("embed"))),
                        fmt::format("{}_proj", channel.name));
  const Tensor in = with_whole_rows(projected);
  const int64_t seq = in.size("seq"), width = p_.conv_width;
  const Tensor all = with_history(in, channel.name);
  const std::vector<Tensor> taps = unbind(param_like(channel.kernel, in), "kernel");
  Tensor ids, all_ids;  // Above 0, the id of what is before the sequence.
  if (segment_ids.valid()) {
    ids = with_whole_rows(segment_ids) + constant(1.0, DType::kI32);
    all_ids = pad(ids, "seq", width - 1, 0);
  }
  Tensor sum;
  for (int64_t j = 0; j < width; ++j) {
    Tensor term = slice(all, "seq", j, j + seq) * taps[static_cast<size_t>(j)];
    if (ids.valid() && j < width - 1)
      term = mask(term, equal(ids, slice(all_ids, "seq", j, j + seq)));
    sum = sum.valid() ? sum + term : term;
  }
  sum = silu(sum);
  if (sum.has("group")) return by_head(sum);
  const Axis group{"group", p_.num_heads.get() / p_.num_kv_heads.get(), {}};
  return by_head(broadcast(sum, {group}, "batch seq kv_heads group key_dim"));
}

// The logarithm of each head's decay: -rate·softplus(x·decay + decay_bias).
Tensor GatedDeltaNet::log_decay(const Tensor& x) const {
  const Tensor in = by_head(place(product(x, param(decay_), over("embed"))));
  const Tensor rate = exp(param_like(log_rate_, in, DType::kF32));
  const Tensor bias = param_like(decay_bias_, in, DType::kF32);
  return neg(softplus(as_dtype(in, DType::kF32) + bias) * rate);
}

Tensor GatedDeltaNet::recurred(const Tensor& q, const Tensor& k, const Tensor& v, Tensor log_decay,
                               Tensor beta, const Tensor& segment_ids) const {
  DecodeCache* const cache = FpropScope::current().cache();
  if (cache == nullptr)
    return linear_recurrence(
               q, k, v, log_decay, beta,
               {.delta = p_.use_delta_rule,
                .segment_ids = segment_ids.valid() ? with_whole_rows(segment_ids) : Tensor()})
        .out;
  // Padding leaves the state as it is.
  const Tensor is_token = cache->token_mask(q);
  log_decay = mask(log_decay, is_token);
  beta = mask(beta, is_token);
  const Type type = make_type(
      DType::kF32, {q.type().axes[0], q.type().axes[2], q.type().axes[3], v.type().axes[3]});
  Tensor out;
  cache->updated("state", type, [&](const Tensor& earlier) {
    const LinearRecurrence y =
        linear_recurrence(q, k, v, log_decay, beta, {.delta = p_.use_delta_rule, .state = earlier});
    out = y.out;
    return y.state;
  });
  return out;
}

Tensor GatedDeltaNet::fprop(Tensor x, const SequenceInfo& sequence) const {
  x = place(x);  // All-gathers a residual that is split along its sequence.
  const Tensor& ids = sequence.segment_ids;
  const Tensor q = of_length_one(convolved(x, query_, ids)) / std::sqrt(key_dim_);
  const Tensor k = of_length_one(convolved(x, key_, ids));
  const Tensor v = convolved(x, value_, ids);
  const Tensor steps = by_head(place(product(x, param(beta_), over("embed"))));
  const Tensor beta = sigmoid(as_dtype(steps, DType::kF32));
  const Tensor context = save_for_backward(recurred(q, k, v, log_decay(x), beta, ids), "context");
  const Tensor gate = place(
      merge_axes(place(product(x, param(gate_), over("embed"))), "kv_heads", "group", "heads"));
  const Tensor gated = reshard(norm_(context), gate.type()) * silu(gate);
  // If heads are split, the product is a partial sum: placing it reduces.
  return save_for_backward(
      place(product(gated, param(output_), over("heads value_dim")), "residual"), "out_proj");
}

}  // namespace tessera
