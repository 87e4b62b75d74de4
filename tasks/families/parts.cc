// SPDX-License-Identifier: Apache-2.0
#include "tasks/families/parts.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "layers/feed_forward/feed_forward.h"

namespace tessera {
namespace {

// 0: none.
int64_t read_window(ConfigMembers& config, const WindowRule& rule) {
  bool is_on = true;
  if (rule.has_switch) config.flag("use_sliding_window", is_on, false);
  const Json* found = config.find(kSlidingWindow);
  if (found == nullptr) return is_on && !config.is_null(kSlidingWindow) ? rule.otherwise : 0;
  const int64_t window = found->as_integer();
  if (window < 1 || window > ConfigMembers::kMostTokens)
    fail("{} is {}, expected a number from 1, or null for none", found->where(), window);
  return is_on ? window : 0;
}

void read_windows(ConfigMembers& config, LayeredLm& model, const WindowRule& rule) {
  const int64_t window = read_window(config, rule);
  std::vector<std::string> types = rule.layer_types;
  if (!types.empty()) bind_layer_types(config, model, types);
  for (size_t i = 0; i < model.layers.size(); ++i)
    if (window > 0 && (types.empty() || types[i] == kSlidingAttention))
      attention_in(model.layers[i]).window = window;
}

void write_windows(ConfigMembers& config, LayeredLm& model, const WindowRule& rule) {
  std::string window = "null";
  std::vector<std::string> types;
  for (TransformerBlock::HParams& layer : model.layers) {
    const Field<int64_t>& own = attention_in(layer).window;
    if (own.has()) window = std::to_string(own.get());
    types.emplace_back(own.has() ? kSlidingAttention : kFullAttention);
  }
  if (rule.has_switch) config.add("use_sliding_window", window == "null" ? "false" : "true");
  config.add(kSlidingWindow, window);
  if (!rule.layer_types.empty()) bind_layer_types(config, model, types);
}

}  // namespace

void bind_sizes(ConfigMembers& config, LayeredLm& model, const SizeNames& names) {
  TransformerLm::HParams& lm = model.lm;
  config.size(names.vocab, lm.vocab_size, {}, ConfigMembers::kMostTokens);
  config.size(names.embed, lm.model_dims);
  config.size(names.heads, lm.num_heads);
  auto layers = static_cast<int64_t>(model.layers.size());
  config.size(names.layers, layers);
  if (layers > kMostLayers)
    fail("{}: {} is {}, expected at most {}", config.where(), names.layers, layers, kMostLayers);
  model.layers.resize(static_cast<size_t>(layers));
}

void bind_head(ConfigMembers& config, LayeredLm& model, bool tied_by_default) {
  bool tied = !model.has_own_head();
  config.flag("tie_word_embeddings", tied, tied_by_default);
  if (tied) {
    config.part<SharedEmbeddingSoftmax::HParams>(model.lm.softmax_tpl, "softmax_tpl");
  } else {
    config.part<FullSoftmax::HParams>(model.lm.softmax_tpl, "softmax_tpl");
    config.part<Embedding::HParams>(model.lm.separate_embedding_tpl, "separate_embedding_tpl");
  }
}

void bind_decoder(ConfigMembers& config, LayeredLm& model, const DecoderDefaults& defaults) {
  bind_sizes(config, model);
  bind_head(config, model, defaults.tied);
  bind_norms<RmsNorm::HParams>(config, model, "rms_norm_eps", defaults.epsilon, defaults.policy);
}

DotProductAttention::HParams& bind_attention(ConfigMembers& config, const LayeredLm& model,
                                             TransformerBlock::HParams& layer,
                                             const AttentionDefaults& defaults) {
  auto& attention = config.part<DotProductAttention::HParams>(layer.attention_tpl, "attention_tpl");
  const int64_t heads = model.lm.num_heads.get();
  const int64_t even = std::max<int64_t>(1, model.lm.model_dims.get() / heads);
  if (defaults.needs_kv_heads) {
    config.size("num_key_value_heads", attention.num_kv_heads);
  } else {
    config.size("num_key_value_heads", attention.num_kv_heads, heads);
  }
  config.size("head_dim", attention.dims_per_head,
              defaults.head_dim > 0 ? defaults.head_dim : even);
  config.rate("attention_dropout", attention.dropout_rate, 0.0);
  if (const int64_t kv_heads = attention.num_kv_heads.get(); heads % kv_heads != 0)
    fail("{}: num_key_value_heads={} does not divide num_attention_heads={}", config.where(),
         kv_heads, heads);
  return attention;
}

FeedForward::HParams& bind_feed_forward(ConfigMembers& config, LayeredLm& model,
                                        TransformerBlock::HParams& layer,
                                        std::string_view activation, const std::string& otherwise) {
  auto& ffn = config.part<FeedForward::HParams>(layer.ffn_tpl, "ffn_tpl");
  if (!config.reads()) model.lm.hidden_dims = ffn.hidden_dims.get_or(1);
  config.size("intermediate_size", model.lm.hidden_dims, {}, ConfigMembers::kMostHidden);
  config.activation(activation, ffn.activation_tpl, otherwise);
  return ffn;
}

FeedForward::HParams& bind_gated_feed_forward(ConfigMembers& config, LayeredLm& model,
                                              TransformerBlock::HParams& layer,
                                              std::string_view activation,
                                              const std::string& otherwise) {
  auto& ffn = bind_feed_forward(config, model, layer, activation, otherwise);
  ffn.use_gated_activation = true;
  return ffn;
}

void bind_expert_width(ConfigMembers& config, LayeredLm& model, MoeFeedForward::HParams& experts,
                       std::string_view name) {
  if (!config.reads()) model.lm.hidden_dims = experts.hidden_dims.get_or(1);
  config.size(name, model.lm.hidden_dims, {}, ConfigMembers::kMostHidden);
}

void bind_router(ConfigMembers& config, const LayeredLm& model, MoeFeedForward::HParams& experts,
                 double loss_coefficient, const RouterDefaults& defaults) {
  auto& router = config.part<TopKRouter::HParams>(experts.router_tpl, "ffn_tpl.router_tpl");
  config.size("num_experts_per_tok", router.top_k, defaults.top_k);
  config.flag("norm_topk_prob", router.normalize_weights, defaults.normalizes_weights);
  bind_balance_loss(config, model, router, loss_coefficient);
  check_top_k(config, router.top_k, experts);
}

void check_top_k(const ConfigMembers& config, int64_t top_k,
                 const MoeFeedForward::HParams& experts) {
  if (top_k > experts.num_experts.get_or(top_k))
    fail("{}: num_experts_per_tok={} exceeds the number of experts, {}", config.where(), top_k,
         experts.num_experts.get());
}

void bind_balance_loss(ConfigMembers& config, const LayeredLm& model, TopKRouter::HParams& router,
                       double otherwise) {
  const double share = static_cast<double>(router.top_k) / static_cast<double>(model.layers.size());
  // Without the rounding of the conversion.
  double coefficient = std::stod(fmt::format("{:.14g}", router.load_balance_weight / share));
  config.not_negative("router_aux_loss_coef", coefficient, otherwise);
  router.load_balance_weight = coefficient * share;
}

void bind_attention_bias(ConfigMembers& config, DotProductAttention::HParams& attention,
                         bool otherwise) {
  bool bias = attention.use_bias || attention.use_output_bias.get_or(false);
  config.flag("attention_bias", bias, otherwise);
  attention.use_bias = bias;
  attention.use_output_bias.reset();
}

void bind_head_norms(ConfigMembers& config, DotProductAttention::HParams& attention,
                     const TransformerBlock::HParams& layer) {
  for (const auto& [norm_tpl, name] :
       {std::pair(&attention.query_norm_tpl, "attention_tpl.query_norm_tpl"),
        std::pair(&attention.key_norm_tpl, "attention_tpl.key_norm_tpl")}) {
    auto& norm = config.part<RmsNorm::HParams>(*norm_tpl, name);
    norm.axis = "head_dim";
    norm.epsilon = layer.norm_tpl.as<RmsNorm::HParams>().epsilon;
    norm.model_dims = attention.dims_per_head.get();
    norm.direct_scale = layer.norm_tpl.as<RmsNorm::HParams>().direct_scale;
  }
}

void bind_all_heads_norms(ConfigMembers& config, const LayeredLm& model,
                          DotProductAttention::HParams& attention,
                          const TransformerBlock::HParams& layer) {
  const auto bind = [&](Template<UnaryLayer>& norm_tpl, std::string_view name,
                        std::string_view axis, int64_t heads) {
    auto& norm = config.part<HeadsRmsNorm::HParams>(norm_tpl, name);
    norm.axis = axis;
    norm.num_heads = heads;
    norm.dims_per_head = attention.dims_per_head.get();
    norm.epsilon = layer.norm_tpl.as<RmsNorm::HParams>().epsilon;
  };
  bind(attention.query_norm_tpl, "attention_tpl.query_norm_tpl", "heads", model.lm.num_heads.get());
  bind(attention.key_norm_tpl, "attention_tpl.key_norm_tpl", "kv_heads",
       attention.num_kv_heads.get());
}

DotProductAttention::HParams& attention_in(TransformerBlock::HParams& layer) {
  return layer.attention_tpl.as<DotProductAttention::HParams>();
}

SoftmaxOptions& softmax_options(LayeredLm& model) {
  auto& softmax_tpl = model.lm.softmax_tpl;
  if (softmax_tpl.holds<FullSoftmax::HParams>()) return softmax_tpl.as<FullSoftmax::HParams>().loss;
  return softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().loss;
}

double& embedding_multiplier(LayeredLm& model) {
  auto& embedding_tpl = model.lm.separate_embedding_tpl;
  if (embedding_tpl.has()) return embedding_tpl.as<Embedding::HParams>().multiplier;
  return model.lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().multiplier;
}

std::vector<WeightRow> joined_rows(std::initializer_list<std::vector<WeightRow>> parts) {
  std::vector<WeightRow> all;
  for (const std::vector<WeightRow>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<WeightRow> embedding_rows() {
  return {{"model.embed_tokens.weight", "vocab, embed", "embedding.w|softmax.w"}};
}

std::vector<WeightRow> head_rows() {
  return {{"model.norm.weight", "embed", "final_ln.scale"},
          {"lm_head.weight", "vocab, embed", "softmax.w"}};
}

std::vector<WeightRow> attention_rows() {
  return {
      {"model.layers.{}.input_layernorm.weight", "embed", "attention_norm.scale"},
      {"model.layers.{}.self_attn.q_proj.weight", "heads head_dim, embed", "attention.query"},
      {"model.layers.{}.self_attn.k_proj.weight", "kv_heads head_dim, embed", "attention.key"},
      {"model.layers.{}.self_attn.v_proj.weight", "kv_heads head_dim, embed", "attention.value"},
      {"model.layers.{}.self_attn.o_proj.weight", "embed, heads head_dim", "attention.output"},
  };
}

std::vector<WeightRow> head_norm_rows() {
  return {
      {"model.layers.{}.self_attn.q_norm.weight", "head_dim", "attention.query_norm.scale"},
      {"model.layers.{}.self_attn.k_norm.weight", "head_dim", "attention.key_norm.scale"},
  };
}

std::vector<WeightRow> all_heads_norm_rows() {
  return {
      {"model.layers.{}.self_attn.q_norm.weight", "heads head_dim", "attention.query_norm.scale"},
      {"model.layers.{}.self_attn.k_norm.weight", "kv_heads head_dim", "attention.key_norm.scale"},
  };
}

std::vector<WeightRow> mlp_rows() {
  return {
      {"model.layers.{}.mlp.gate_proj.weight", "mlp, embed", "ffn.gate"},
      {"model.layers.{}.mlp.up_proj.weight", "mlp, embed", "ffn.up"},
      {"model.layers.{}.mlp.down_proj.weight", "embed, mlp", "ffn.down"},
  };
}

std::vector<WeightRow> gated_feed_forward_rows() {
  return joined_rows(
      {{{"model.layers.{}.post_attention_layernorm.weight", "embed", "ffn_norm.scale"}},
       mlp_rows()});
}

std::vector<WeightRow> expert_rows() {
  return {
      {"model.layers.{}.mlp.gate.weight", "experts, embed", "ffn.router.w"},
      {"model.layers.{}.mlp.experts.{}.gate_proj.weight", "mlp, embed", "ffn.gate"},
      {"model.layers.{}.mlp.experts.{}.up_proj.weight", "mlp, embed", "ffn.up"},
      {"model.layers.{}.mlp.experts.{}.down_proj.weight", "embed, mlp", "ffn.down"},
  };
}

std::vector<WeightRow> post_norm_rows() {
  return {
      {"model.layers.{}.post_attention_layernorm.weight", "embed", "attention_post_norm.scale"},
      {"model.layers.{}.post_feedforward_layernorm.weight", "embed", "ffn_post_norm.scale"},
  };
}

void bind_layer_types(ConfigMembers& config, const LayeredLm& model,
                      std::vector<std::string>& types, std::string_view other) {
  config.texts("layer_types", types, std::vector(types));
  if (types.size() != model.layers.size())
    fail("{}: layer_types has {} entries for {} layers", config.where(), types.size(),
         model.layers.size());
  for (const std::string& type : types)
    if (type != other && type != kFullAttention)
      fail("{}: layer_types has '{}', expected {} or {}", config.where(), type, kFullAttention,
           other);
}

void bind_windows(ConfigMembers& config, LayeredLm& model, const WindowRule& rule) {
  for (TransformerBlock::HParams& layer : model.layers)
    config.part<DotProductAttention::HParams>(layer.attention_tpl, "attention_tpl");
  config.reads() ? read_windows(config, model, rule) : write_windows(config, model, rule);
}

std::vector<std::string> sliding_layers(const LayeredLm& model,
                                        const std::function<bool(size_t)>& slides) {
  std::vector<std::string> types;
  for (size_t i = 0; i < model.layers.size(); ++i)
    types.emplace_back(slides(i) ? kSlidingAttention : kFullAttention);
  return types;
}

}  // namespace tessera
