// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 (2024, arXiv 2405.04434) and DeepSeek-V3 (2024, arXiv 2412.19437): latent attention,
// shared experts, dense layers first, and routers that choose groups of experts before experts.
#include <charconv>

#include "layers/attention/latent_attention.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void bind_latent_attention(ConfigMembers& config, LayeredLm& model,
                           TransformerBlock::HParams& layer) {
  auto& attention = config.part<LatentAttention::HParams>(layer.attention_tpl, "attention_tpl");
  config.size("kv_lora_rank", attention.kv_lora_rank, 512);
  if (config.reads() ? !config.is_null("q_lora_rank") : attention.q_lora_rank.has()) {
    config.size("q_lora_rank", attention.q_lora_rank, 1536);
  } else {
    config.add("q_lora_rank", "null");
    config.ignore("q_lora_rank");
  }
  config.size("qk_nope_head_dim", attention.dims_per_head, 128);
  config.size("qk_rope_head_dim", attention.rope_dims, 64);
  config.size("v_head_dim", attention.value_dims_per_head, 128);
  config.only("attention_bias", false, "projections to latents alone have no bias here", false);
  bind_latent_rotary(config, attention, {.max_positions = 4096});
  int64_t heads = model.lm.num_heads.get();  // All heads share the latent.
  config.size("num_key_value_heads", heads, heads);
}

// The members that both versions have.
void bind_deepseek_experts(ConfigMembers& config, MoeFeedForward::HParams& experts,
                           TopKRouter::HParams& router) {
  experts.use_gated_activation = true;
  config.activation("hidden_act", experts.activation_tpl, "silu");
  config.size("moe_intermediate_size", experts.hidden_dims, {}, ConfigMembers::kMostHidden);
  config.size("n_routed_experts", experts.num_experts);
  config.size("n_shared_experts", experts.num_shared_experts, 1);
  config.size("num_experts_per_tok", router.top_k, 8);
  config.positive("routed_scaling_factor", router.weight_scale, 1.0);
  check_top_k(config, router.top_k, experts);
}

void bind_groups(ConfigMembers& config, TopKRouter::HParams& router, int64_t best) {
  config.size("n_group", router.num_groups, 1);
  config.size("topk_group", router.top_groups, 1);
  router.group_best = best;
  if (router.num_groups == 1) router.top_groups = router.group_best = 1;
}

using BindExperts = void (*)(ConfigMembers&, MoeFeedForward::HParams&, TopKRouter::HParams&);

void deepseek_members(ConfigMembers& config, LayeredLm& model, BindExperts bind_experts) {
  bind_decoder(config, model);
  int64_t dense = 0;
  while (!config.reads() && dense < std::ssize(model.layers) &&
         model.layers[static_cast<size_t>(dense)].ffn_tpl.holds<FeedForward::HParams>())
    ++dense;
  config.number("first_k_dense_replace", dense, 0);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    TransformerBlock::HParams& layer = model.layers[i];
    bind_latent_attention(config, model, layer);
    if (static_cast<int64_t>(i) < dense) {
      bind_gated_feed_forward(config, model, layer);
      continue;
    }
    auto& experts = config.part<MoeFeedForward::HParams>(layer.ffn_tpl, "ffn_tpl");
    auto& router = config.part<TopKRouter::HParams>(experts.router_tpl, "ffn_tpl.router_tpl");
    bind_experts(config, experts, router);
    bind_deepseek_experts(config, experts, router);
  }
  // Also where no layer is dense.
  config.size("intermediate_size", model.lm.hidden_dims, {}, ConfigMembers::kMostHidden);
  // They concern training or heads that predict further tokens, or follow from the sizes above.
  config.ignore({"attention_dropout", "aux_loss_alpha", "seq_aux", "ep_size", "head_dim",
                 "mlp_bias", "num_nextn_predict_layers", "num_mtp_layers", "qk_head_dim",
                 "num_local_experts", "moe_layer_freq"});
}

void deepseek_v2_members(ConfigMembers& config, LayeredLm& model) {
  deepseek_members(
      config, model,
      [](ConfigMembers& members, MoeFeedForward::HParams&, TopKRouter::HParams& router) {
        std::string method = router.num_groups > 1 ? "group_limited_greedy" : "greedy";
        members.text("topk_method", method, "greedy");
        bind_groups(members, router, 1);
        if (members.reads() && method == "greedy") router.num_groups = router.top_groups = 1;
        router.normalize_weights = false;
        members.only("norm_topk_prob", false, "transformers ignores it", false);
        members.ignore("scoring_func");
      });
}

void deepseek_v3_members(ConfigMembers& config, LayeredLm& model) {
  deepseek_members(
      config, model,
      [](ConfigMembers& members, MoeFeedForward::HParams&, TopKRouter::HParams& router) {
        bind_groups(members, router, 2);
        members.flag("norm_topk_prob", router.normalize_weights, true);
        router.scores = RouterScores::kSigmoid;
        if (members.reads()) router.bias_rate = 0.001;  // The paper's, for most of its training.
        members.only("rope_interleave", true, "expected pairs (2i, 2i+1)", true);
        members.ignore({"scoring_func", "topk_method"});
      });
}

// Layers beyond the last one predict further tokens. transformers ignores them, too.
bool is_of_further_layer(std::string_view name, const LayeredLm& model) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return false;
  int64_t layer = 0;
  std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return layer >= std::ssize(model.layers);
}

std::vector<WeightRow> deepseek_rows() {
  return joined_rows(
      {embedding_rows(),
       {
           {"model.layers.{}.input_layernorm.weight", "embed", "attention_norm.scale"},
           {"model.layers.{}.self_attn.q_proj.weight", "heads +head_dim, embed", "attention.query"},
           {"model.layers.{}.self_attn.q_proj.weight", "heads +head_dim, embed",
            "attention.query_rope"},
           {"model.layers.{}.self_attn.q_a_proj.weight", "q_latent, embed", "attention.q_down"},
           {"model.layers.{}.self_attn.q_a_layernorm.weight", "q_latent", "attention.q_norm.scale"},
           {"model.layers.{}.self_attn.q_b_proj.weight", "heads +head_dim, q_latent",
            "attention.query"},
           {"model.layers.{}.self_attn.q_b_proj.weight", "heads +head_dim, q_latent",
            "attention.query_rope"},
           {"model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "+kv_latent, embed",
            "attention.kv_down"},
           {"model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", "+head_dim, embed",
            "attention.key_rope"},
           {"model.layers.{}.self_attn.kv_a_layernorm.weight", "kv_latent",
            "attention.kv_norm.scale"},
           {"model.layers.{}.self_attn.kv_b_proj.weight", "kv_heads +head_dim, kv_latent",
            "attention.key"},
           {"model.layers.{}.self_attn.kv_b_proj.weight", "kv_heads +head_dim, kv_latent",
            "attention.value"},
           {"model.layers.{}.self_attn.o_proj.weight", "embed, heads head_dim", "attention.output"},
           {"model.layers.{}.mlp.gate.e_score_correction_bias", "experts", "ffn.router.bias"},
           {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "mlp, embed", "ffn.shared.gate"},
           {"model.layers.{}.mlp.shared_experts.up_proj.weight", "mlp, embed", "ffn.shared.up"},
           {"model.layers.{}.mlp.shared_experts.down_proj.weight", "embed, mlp", "ffn.shared.down"},
       },
       expert_rows(),
       gated_feed_forward_rows(),
       head_rows()});
}

const FamilyRegistrar kDeepseekV2{{.model_type = "deepseek_v2",
                                   .architecture = "DeepseekV2ForCausalLM",
                                   .members = deepseek_v2_members,
                                   .weights = deepseek_rows()}};
const FamilyRegistrar kDeepseekV3{{.model_type = "deepseek_v3",
                                   .architecture = "DeepseekV3ForCausalLM",
                                   .members = deepseek_v3_members,
                                   .weights = deepseek_rows(),
                                   .is_ignored = is_of_further_layer}};

}  // namespace
}  // namespace tessera
