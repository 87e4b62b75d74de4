// SPDX-License-Identifier: Apache-2.0
// gpt-oss (OpenAI, 2025, arXiv 2508.10925): experts with biases and a clipped SwiGLU, and attention
// with sinks, in a window in every second layer.
#include "core/base/error.h"
#include "layers/experts/moe_feed_forward.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void bind_clipped_experts(ConfigMembers& config, LayeredLm& model,
                          TransformerBlock::HParams& layer) {
  auto& experts = config.part<MoeFeedForward::HParams>(layer.ffn_tpl, "ffn_tpl");
  bind_expert_width(config, model, experts, "intermediate_size");
  experts.use_gated_activation = experts.use_bias = true;
  auto& swish = config.part<Swish::HParams>(experts.activation_tpl, "ffn_tpl.activation_tpl");
  config.positive("swiglu_alpha", swish.slope, 1.702);
  config.positive("swiglu_limit", swish.limit, 7.0);
  experts.up_limit = swish.limit;
  experts.up_offset = 1.0;
  config.size("num_local_experts", experts.num_experts, 128);
  auto& router = config.part<TopKRouter::HParams>(experts.router_tpl, "ffn_tpl.router_tpl");
  router.use_bias = router.normalize_weights = true;
  config.size("num_experts_per_tok", router.top_k, 4);
  bind_balance_loss(config, model, router, 0.001);
  check_top_k(config, router.top_k, experts);
}

// Without these members, or with null, transformers has YaRN.
void write_plain_positions(ConfigMembers& config, const DotProductAttention::HParams& attention) {
  if (config.reads() || !attention.rotary_tpl.has()) return;
  const auto& rotary = attention.rotary_tpl.as<RotaryPositionEmbedding::HParams>();
  if (!rotary.stretch && !rotary.yarn && !rotary.long_sequences && rotary.min_timescale == 1.0)
    config.add("rope_scaling", R"({"rope_type": "default"})");
}
void check_positions(ConfigMembers& config) {
  if (config.reads() && config.find("rope_scaling") == nullptr &&
      config.find("rope_parameters") == nullptr)
    fail("{} lacks 'rope_scaling' or 'rope_parameters'; expected one of them", config.where());
}

void gpt_oss_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model, {.epsilon = 1e-5});
  check_positions(config);
  bind_windows(config, model, {.otherwise = 128, .layer_types = sliding_layers(model, [](size_t i) {
                                                   return i % 2 == 0;
                                                 })});
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer, {.head_dim = 64});
    bind_attention_bias(config, attention, true);
    attention.use_sinks = true;
    write_plain_positions(config, attention);
    bind_rotary(config, attention, {.theta = 150000.0, .max_positions = 131072});
    bind_clipped_experts(config, model, layer);
  }
  // The activation is that of swiglu_alpha, and initial_context_length is part of rope_scaling.
  config.ignore({"hidden_act", "experts_per_token", "initial_context_length"});
}

std::vector<WeightRow> gpt_oss_rows() {
  return {
      {"model.layers.{}.self_attn.sinks", "heads", "attention.sinks"},
      {"model.layers.{}.post_attention_layernorm.weight", "embed", "ffn_norm.scale"},
      {"model.layers.{}.mlp.router.weight", "experts, embed", "ffn.router.w"},
      {"model.layers.{}.mlp.router.bias", "experts", "ffn.router.logit_bias"},
      {"model.layers.{}.mlp.experts.gate_up_proj", "experts, embed, mlp +", "ffn.gate"},
      {"model.layers.{}.mlp.experts.gate_up_proj", "experts, embed, mlp +", "ffn.up"},
      {"model.layers.{}.mlp.experts.gate_up_proj_bias", "experts, mlp +", "ffn.gate_bias"},
      {"model.layers.{}.mlp.experts.gate_up_proj_bias", "experts, mlp +", "ffn.up_bias"},
      {"model.layers.{}.mlp.experts.down_proj", "experts, mlp, embed", "ffn.down"},
      {"model.layers.{}.mlp.experts.down_proj_bias", "experts, embed", "ffn.down_bias"},
  };
}

const FamilyRegistrar kGptOss{
    {.model_type = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .members = gpt_oss_members,
     .weights = joined_rows({embedding_rows(), attention_rows(), gpt_oss_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
