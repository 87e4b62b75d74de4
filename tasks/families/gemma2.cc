// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (2024, arXiv 2408.00118): Gemma with norms before and after each sublayer, soft caps, and
// attention in a window in every second layer.
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void gemma2_members(ConfigMembers& config, LayeredLm& model) {
  bind_gemma(config, model, NormPolicy::kPrimerHybrid);
  bind_windows(config, model,
               {.otherwise = 4096,
                .layer_types = sliding_layers(model, [](size_t i) { return i % 2 == 0; })});
  config.optional_positive("final_logit_softcapping", softmax_options(model).soft_cap, 30.0);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = layer.attention_tpl.as<DotProductAttention::HParams>();
    bind_query_scalar(config, attention, 256);
    config.optional_positive("attn_logit_softcapping", attention.logit_cap, 50.0);
    bind_rotary(config, attention, {.max_positions = 8192});
    bind_gated_feed_forward(config, model, layer, "hidden_activation", "gelu_pytorch_tanh");
  }
  for (const char* name : {"hidden_act", "cache_implementation"}) config.ignore(name);
}

const FamilyRegistrar kGemma2{
    {.model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .members = gemma2_members,
     .weights = joined_rows(
         {embedding_rows(), attention_rows(), sandwich_norm_rows(), mlp_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
