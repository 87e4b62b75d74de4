// SPDX-License-Identifier: Apache-2.0
// Gemma (2024, arXiv 2403.08295): embeddings are multiplied by √hidden_size, and scales of norms
// are stored minus 1. Gemma 2 (2024, arXiv 2408.00118) has norms before and after each sublayer,
// soft caps, and attention in a window in every second layer. Gemma 3, the text model (2025, arXiv
// 2503.19786), has norms of queries and keys in place of soft caps, and a window in five of six
// layers, with another rotary base there.
#include <cmath>

#include "tasks/families/parts.h"

namespace tessera {
namespace {

// What all versions have in common: sizes, a tied head, embeddings that are multiplied by
// √model_dims, norms whose scales are stored minus 1, and biases of attention.
void bind_gemma(ConfigMembers& config, LayeredLm& model, NormPolicy policy = NormPolicy::kPre) {
  bind_decoder(config, model, {.tied = true, .policy = policy});
  if (model.has_own_head())
    model.lm.separate_embedding_tpl.as<Embedding::HParams>().scale_sqrt_depth = true;
  else
    model.lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().scale_sqrt_depth = true;
  model.lm.final_ln_tpl.as<RmsNorm::HParams>().direct_scale = false;
  for (TransformerBlock::HParams& layer : model.layers) {
    layer.norm_tpl.as<RmsNorm::HParams>().direct_scale = false;
    bind_attention_bias(config, bind_attention(config, model, layer, {.head_dim = 256}), false);
  }
  config.only("use_bidirectional_attention", false, "expected a causal decoder", false);
}

// query_pre_attn_scalar: scores are divided by its root.
void bind_query_scalar(ConfigMembers& config, DotProductAttention::HParams& attention) {
  const double scale = attention.query_scale.get_or(1.0);
  int64_t scalar = std::max<int64_t>(1, std::llround(1.0 / (scale * scale)));
  config.size("query_pre_attn_scalar", scalar, 256);
  attention.query_scale = 1.0 / std::sqrt(static_cast<double>(scalar));
}

// Norms before and after each sublayer.
std::vector<WeightRow> sandwich_norm_rows() {
  return joined_rows(
      {{{"model.layers.{}.pre_feedforward_layernorm.weight", "embed", "ffn_norm.scale"}},
       post_norm_rows()});
}

void gemma_members(ConfigMembers& config, LayeredLm& model) {
  bind_gemma(config, model);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = attention_in(layer);
    bind_rotary(config, attention, {.max_positions = 8192});
    auto& ffn = bind_gated_feed_forward(config, model, layer, "hidden_act", "gelu_pytorch_tanh");
    // In the first files "gelu" meant the approximation, and transformers reads it so.
    if (ffn.activation_tpl.holds<GELU::HParams>()) ffn.activation_tpl = GELU::HParams{};
  }
  config.ignore("hidden_activation");
}

const FamilyRegistrar kGemma{{.model_type = "gemma",
                              .architecture = "GemmaForCausalLM",
                              .members = gemma_members,
                              .weights = joined_rows({embedding_rows(), attention_rows(),
                                                      gated_feed_forward_rows(), head_rows()})}};

void gemma2_members(ConfigMembers& config, LayeredLm& model) {
  bind_gemma(config, model, NormPolicy::kPrimerHybrid);
  bind_windows(config, model,
               {.otherwise = 4096,
                .layer_types = sliding_layers(model, [](size_t i) { return i % 2 == 0; })});
  config.optional_positive("final_logit_softcapping", softmax_options(model).soft_cap, 30.0);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = attention_in(layer);
    bind_query_scalar(config, attention);
    config.optional_positive("attn_logit_softcapping", attention.logit_cap, 50.0);
    bind_rotary(config, attention, {.max_positions = 8192});
    bind_gated_feed_forward(config, model, layer, "hidden_activation", "gelu_pytorch_tanh");
  }
  config.ignore({"hidden_act", "cache_implementation"});
}

const FamilyRegistrar kGemma2{
    {.model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .members = gemma2_members,
     .weights = joined_rows(
         {embedding_rows(), attention_rows(), sandwich_norm_rows(), mlp_rows(), head_rows()})}};

void gemma3_members(ConfigMembers& config, LayeredLm& model) {
  bind_gemma(config, model, NormPolicy::kPrimerHybrid);
  int64_t pattern = 6;
  if (config.reads()) config.size("sliding_window_pattern", pattern, 6);
  const auto slides = [&](size_t i) { return (static_cast<int64_t>(i) + 1) % pattern != 0; };
  bind_windows(config, model, {.otherwise = 4096, .layer_types = sliding_layers(model, slides)});
  config.optional_positive("final_logit_softcapping", softmax_options(model).soft_cap, 0.0);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = attention_in(layer);
    bind_query_scalar(config, attention);
    config.optional_positive("attn_logit_softcapping", attention.logit_cap, 0.0);
    bind_head_norms(config, attention, layer);
    bind_gated_feed_forward(config, model, layer, "hidden_activation", "gelu_pytorch_tanh");
  }
  bind_rotary_by_type(config, model,
                      {.max_positions = 131072, .theta_name = "rope_local_base_freq"},
                      {.theta = 1e6, .max_positions = 131072});
  config.ignore(
      {"_sliding_window_pattern", "cache_implementation", "hidden_act", "rope_local_base_freq"});
}

const FamilyRegistrar kGemma3{
    {.model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .members = gemma3_members,
     .weights = joined_rows({embedding_rows(), attention_rows(), head_norm_rows(),
                             sandwich_norm_rows(), mlp_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
