// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE (Yang et al., 2025, arXiv 2505.09388): Qwen3 with experts in all layers, in every
// decoder_sparse_step-th, or in those that mlp_only_layers does not list.
#include "tasks/families/qwen3_moe.h"

#include <algorithm>

#include "layers/experts/moe_feed_forward.h"

namespace tessera {

std::vector<bool> bind_dense_layers(ConfigMembers& config, const LayeredLm& model) {
  std::vector<int64_t> listed;
  int64_t step = 1;
  std::vector<bool> dense(model.layers.size());
  if (!config.reads()) {
    for (size_t i = 0; i < dense.size(); ++i) {
      dense[i] = model.layers[i].ffn_tpl.holds<FeedForward::HParams>();
      if (dense[i]) listed.push_back(static_cast<int64_t>(i));
    }
  }
  config.numbers("mlp_only_layers", listed, {});
  config.size("decoder_sparse_step", step, 1);
  if (!config.reads()) return dense;
  for (size_t i = 0; i < dense.size(); ++i)
    dense[i] = std::ranges::count(listed, static_cast<int64_t>(i)) > 0 ||
               (static_cast<int64_t>(i) + 1) % step != 0;
  return dense;
}

MoeFeedForward::HParams& bind_qwen3_experts(ConfigMembers& config, LayeredLm& model,
                                            TransformerBlock::HParams& layer,
                                            const Qwen3ExpertDefaults& defaults) {
  auto& experts = config.part<MoeFeedForward::HParams>(layer.ffn_tpl, "ffn_tpl");
  experts.use_gated_activation = true;
  config.activation("hidden_act", experts.activation_tpl, "silu");
  config.size("moe_intermediate_size", experts.hidden_dims, defaults.width,
              ConfigMembers::kMostHidden);
  int64_t count = experts.num_experts.get_or(1);
  config.size("num_local_experts", count, defaults.count);  // The name in files of transformers 5.
  config.size("num_experts", count, count);
  experts.num_experts = count;
  bind_router(config, model, experts, 0.001, defaults.router);
  return experts;
}

namespace {

void qwen3_moe_members(ConfigMembers& config, LayeredLm& model) {
  bind_sizes(config, model);
  bind_head(config, model, false);
  bind_norms<RmsNorm::HParams>(config, model, "rms_norm_eps", 1e-6);
  const std::vector<bool> dense = bind_dense_layers(config, model);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    TransformerBlock::HParams& layer = model.layers[i];
    auto& attention = bind_attention(config, model, layer);
    bind_attention_bias(config, attention, false);
    bind_head_norms(config, attention, layer);
    bind_rotary(config, attention, {.max_positions = 32768});
    if (dense[i]) {
      bind_gated_feed_forward(config, model, layer);
    } else {
      bind_qwen3_experts(config, model, layer, {});
    }
  }
  // Also where no layer is dense.
  config.size("intermediate_size", model.lm.hidden_dims, {}, ConfigMembers::kMostHidden);
  bind_windows(config, model, {.otherwise = 4096, .has_switch = true});
  config.ignore("layer_types");  // A window is of all layers.
}

const FamilyRegistrar kQwen3Moe{
    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .members = qwen3_moe_members,
     .weights = joined_rows({embedding_rows(), attention_rows(), head_norm_rows(), expert_rows(),
                             gated_feed_forward_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
