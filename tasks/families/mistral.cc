// SPDX-License-Identifier: Apache-2.0
// Mistral (Jiang et al., 2023, arXiv 2310.06825): Llama without biases, with attention in a window
// in the first release. Mixtral (Jiang et al., 2024, arXiv 2401.04088) has a mixture of experts for
// its feed-forward.
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void mistral_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer, {.needs_kv_heads = true});
    bind_rotary(config, attention, {.max_positions = 131072});
    bind_gated_feed_forward(config, model, layer);
  }
  bind_windows(config, model, {.otherwise = 4096});
}

const FamilyRegistrar kMistral{{.model_type = "mistral",
                                .architecture = "MistralForCausalLM",
                                .members = mistral_members,
                                .weights = joined_rows({embedding_rows(), attention_rows(),
                                                        gated_feed_forward_rows(), head_rows()})}};

// Mixtral divides the scores of the chosen experts by their sum, and drops no tokens.
void bind_mixtral_experts(ConfigMembers& config, LayeredLm& model,
                          TransformerBlock::HParams& layer) {
  auto& experts = config.part<MoeFeedForward::HParams>(layer.ffn_tpl, "ffn_tpl");
  bind_expert_width(config, model, experts, "intermediate_size");
  experts.use_gated_activation = true;
  config.activation("hidden_act", experts.activation_tpl, "silu");
  config.size("num_local_experts", experts.num_experts);
  auto& router = config.part<TopKRouter::HParams>(experts.router_tpl, "ffn_tpl.router_tpl");
  config.size("num_experts_per_tok", router.top_k);
  bind_balance_loss(config, model, router, 0.001);
  config.rate("router_jitter_noise", router.jitter, 0.0);
  check_top_k(config, router.top_k, experts);
}

void mixtral_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model, {.epsilon = 1e-5});
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer, {.needs_kv_heads = true});
    bind_rotary(config, attention, {.theta = 1e6, .max_positions = 131072});
    bind_mixtral_experts(config, model, layer);
  }
  bind_windows(config, model, {});
}

std::vector<WeightRow> mixtral_expert_rows() {
  return {
      {"model.layers.{}.post_attention_layernorm.weight", "embed", "ffn_norm.scale"},
      {"model.layers.{}.block_sparse_moe.gate.weight", "experts, embed", "ffn.router.w"},
      {"model.layers.{}.block_sparse_moe.experts.{}.w1.weight", "mlp, embed", "ffn.gate"},
      {"model.layers.{}.block_sparse_moe.experts.{}.w3.weight", "mlp, embed", "ffn.up"},
      {"model.layers.{}.block_sparse_moe.experts.{}.w2.weight", "embed, mlp", "ffn.down"},
  };
}

const FamilyRegistrar kMixtral{{.model_type = "mixtral",
                                .architecture = "MixtralForCausalLM",
                                .members = mixtral_members,
                                .weights = joined_rows({embedding_rows(), attention_rows(),
                                                        mixtral_expert_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
