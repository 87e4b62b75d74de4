// SPDX-License-Identifier: Apache-2.0
// A family of Hugging Face models in a plugin: OLMoE (Muennighoff et al., 2024, arXiv 2409.02060),
// experts with norms of all queries and all keys of a token.
#include "layers/experts/moe_feed_forward.h"
#include "tasks/families/parts.h"

namespace elsewhere {
namespace {

void olmoe_members(tessera::ConfigMembers& config, tessera::LayeredLm& model) {
  bind_sizes(config, model);
  bind_head(config, model, false);
  tessera::bind_norms<tessera::RmsNorm::HParams>(config, model, "rms_norm_eps", 1e-5);
  for (tessera::TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer);
    bind_attention_bias(config, attention, false);
    bind_all_heads_norms(config, model, attention, layer);
    tessera::bind_rotary(config, attention, {.max_positions = 4096});
    auto& experts = config.part<tessera::MoeFeedForward::HParams>(layer.ffn_tpl, "ffn_tpl");
    experts.use_gated_activation = true;
    config.activation("hidden_act", experts.activation_tpl, "silu");
    bind_expert_width(config, model, experts, "intermediate_size");
    config.size("num_experts", experts.num_experts, 64);
    bind_router(config, model, experts, 0.01);
  }
  config.absent("clip_qkv", "queries, keys and values are not clipped here");
}

const tessera::FamilyRegistrar kOlmoe{
    {.model_type = "olmoe",
     .architecture = "OlmoeForCausalLM",
     .members = olmoe_members,
     .weights = tessera::joined_rows(
         {tessera::embedding_rows(),
          tessera::attention_rows(),
          tessera::all_heads_norm_rows(),
          {{"model.layers.{}.post_attention_layernorm.weight", "embed", "ffn_norm.scale"}},
          tessera::expert_rows(),
          tessera::head_rows()})}};

}  // namespace
}  // namespace elsewhere
