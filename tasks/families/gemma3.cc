// SPDX-License-Identifier: Apache-2.0
// Gemma 3, the text model (2025, arXiv 2503.19786): Gemma 2 with norms of queries and keys in place
// of soft caps, a window in five of six layers, with another rotary base there.
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void gemma3_members(ConfigMembers& config, LayeredLm& model) {
  bind_gemma(config, model, NormPolicy::kPrimerHybrid);
  int64_t pattern = 6;
  if (config.reads()) config.size("sliding_window_pattern", pattern, 6);
  const auto slides = [&](size_t i) { return (static_cast<int64_t>(i) + 1) % pattern != 0; };
  bind_windows(config, model, {.otherwise = 4096, .layer_types = sliding_layers(model, slides)});
  config.optional_positive("final_logit_softcapping", softmax_options(model).soft_cap, 0.0);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = layer.attention_tpl.as<DotProductAttention::HParams>();
    bind_query_scalar(config, attention, 256);
    config.optional_positive("attn_logit_softcapping", attention.logit_cap, 0.0);
    bind_head_norms(config, attention, layer);
    bind_gated_feed_forward(config, model, layer, "hidden_activation", "gelu_pytorch_tanh");
  }
  bind_rotary_by_type(config, model,
                      {.max_positions = 131072, .theta_name = "rope_local_base_freq"},
                      {.theta = 1e6, .max_positions = 131072});
  for (const char* name :
       {"_sliding_window_pattern", "cache_implementation", "hidden_act", "rope_local_base_freq"})
    config.ignore(name);
}

const FamilyRegistrar kGemma3{
    {.model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .members = gemma3_members,
     .weights = joined_rows({embedding_rows(), attention_rows(), head_norm_rows(),
                             sandwich_norm_rows(), mlp_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
