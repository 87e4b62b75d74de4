// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next (Qwen Team, 2025): Gated DeltaNet in three of four layers, attention with gates in the
// others, and experts with a gate for the shared one. All norms but Gated DeltaNet's are stored
// minus 1.
#include "core/base/error.h"
#include "layers/attention/gated_delta_net.h"
#include "tasks/families/qwen3_moe.h"

namespace tessera {
namespace {

constexpr std::string_view kLinearAttention = "linear_attention";

// layer_types; without it each full_attention_interval-th layer is of full attention.
std::vector<std::string> bind_types(ConfigMembers& config, const LayeredLm& model) {
  int64_t interval = 4;
  if (config.reads()) config.size("full_attention_interval", interval, interval);
  std::vector<std::string> types;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const bool is_linear = config.reads()
                               ? (static_cast<int64_t>(i) + 1) % interval != 0
                               : model.layers[i].attention_tpl.holds<GatedDeltaNet::HParams>();
    types.emplace_back(is_linear ? kLinearAttention : kFullAttention);
  }
  bind_layer_types(config, model, types, kLinearAttention);
  return types;
}

void bind_delta_net(ConfigMembers& config, TransformerBlock::HParams& layer) {
  auto& delta = config.part<GatedDeltaNet::HParams>(layer.attention_tpl, "attention_tpl");
  config.size("linear_num_key_heads", delta.num_kv_heads, 16);
  config.size("linear_num_value_heads", delta.num_heads, 32);
  config.size("linear_key_head_dim", delta.dims_per_head, 128);
  config.size("linear_value_head_dim", delta.value_dims_per_head, 128);
  config.size("linear_conv_kernel_dim", delta.conv_width, 4);
  delta.norm_epsilon = layer.norm_tpl.as<RmsNorm::HParams>().epsilon;
  if (delta.num_heads.get() % delta.num_kv_heads.get() != 0)
    fail("{}: linear_num_key_heads={} does not divide linear_num_value_heads={}", config.where(),
         delta.num_kv_heads.get(), delta.num_heads.get());
  config.only("hidden_act", "silu", "Gated DeltaNet has SiLU here");
}

void bind_gated_attention(ConfigMembers& config, const LayeredLm& model,
                          TransformerBlock::HParams& layer) {
  auto& attention = bind_attention(config, model, layer, {.head_dim = 256});
  attention.use_output_gate = true;
  bind_attention_bias(config, attention, false);
  bind_head_norms(config, attention, layer);
  bind_rotary(config, attention, {.max_positions = 32768, .share = 0.25});
}

// The shared expert is one of a multiple of the others' width.
void bind_shared_expert(ConfigMembers& config, MoeFeedForward::HParams& experts) {
  const int64_t width = experts.hidden_dims.get();
  int64_t shared = experts.num_shared_experts * width;
  config.size("shared_expert_intermediate_size", shared, 512, ConfigMembers::kMostHidden);
  if (shared % width != 0)
    fail("{}: shared_expert_intermediate_size={} is not a multiple of moe_intermediate_size={}",
         config.where(), shared, width);
  experts.num_shared_experts = shared / width;
  experts.use_shared_gate = true;
}

void qwen3_next_members(ConfigMembers& config, LayeredLm& model) {
  bind_sizes(config, model);
  bind_head(config, model, false);
  bind_norms<RmsNorm::HParams>(config, model, "rms_norm_eps", 1e-6);
  model.lm.final_ln_tpl.as<RmsNorm::HParams>().direct_scale = false;
  const std::vector<std::string> types = bind_types(config, model);
  const std::vector<bool> dense = bind_dense_layers(config, model);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    TransformerBlock::HParams& layer = model.layers[i];
    layer.norm_tpl.as<RmsNorm::HParams>().direct_scale = false;
    types[i] == kLinearAttention ? bind_delta_net(config, layer)
                                 : bind_gated_attention(config, model, layer);
    if (dense[i])
      bind_gated_feed_forward(config, model, layer);
    else
      bind_shared_expert(
          config,
          bind_qwen3_experts(
              config, model, layer,
              {.width = 512, .count = 512, .router = {.top_k = 10, .normalizes_weights = true}}));
  }
  // Also where no layer is dense.
  config.size("intermediate_size", model.lm.hidden_dims, 5632, ConfigMembers::kMostHidden);
}

// Heads of a multi-token prediction, which transformers ignores, too.
bool is_of_further_layer(std::string_view name, const LayeredLm&) {
  return name.starts_with("mtp.");
}

std::vector<WeightRow> delta_net_rows() {
  const std::string qkvz = "model.layers.{}.linear_attn.in_proj_qkvz.weight",
                    ba = "model.layers.{}.linear_attn.in_proj_ba.weight",
                    conv = "model.layers.{}.linear_attn.conv1d.weight";
  return {
      {qkvz, "kv_heads +key_dim, embed", "attention.query"},
      {qkvz, "kv_heads +key_dim, embed", "attention.key"},
      {qkvz, "kv_heads +group value_dim, embed", "attention.value"},
      {qkvz, "kv_heads +group value_dim, embed", "attention.gate"},
      {ba, "kv_heads +group, embed", "attention.beta"},
      {ba, "kv_heads +group, embed", "attention.decay"},
      {conv, "+kv_heads key_dim, , kernel", "attention.query_conv"},
      {conv, "+kv_heads key_dim, , kernel", "attention.key_conv"},
      {conv, "+kv_heads group value_dim, , kernel", "attention.value_conv"},
      {"model.layers.{}.linear_attn.dt_bias", "heads", "attention.decay_bias"},
      {"model.layers.{}.linear_attn.A_log", "heads", "attention.log_rate"},
      {"model.layers.{}.linear_attn.norm.weight", "value_dim", "attention.norm.scale"},
      {"model.layers.{}.linear_attn.out_proj.weight", "embed, heads value_dim", "attention.output"},
  };
}

// Queries and gates are rows of one projection.
std::vector<WeightRow> gated_attention_rows() {
  std::vector<WeightRow> rows;
  for (const WeightRow& row : attention_rows()) {
    const bool of_queries = row.theirs.find("q_proj") != row.theirs.npos;
    const bool is_bias = row.theirs.ends_with("bias");
    if (!of_queries) {
      rows.push_back(row);
      continue;
    }
    for (const std::string name : {"query", "gate"})
      rows.push_back({row.theirs, is_bias ? "heads +head_dim" : "heads +head_dim, embed",
                      "attention." + name + (is_bias ? "_bias" : "")});
  }
  return joined_rows({rows, head_norm_rows()});
}

std::vector<WeightRow> shared_expert_rows() {
  return {
      {"model.layers.{}.mlp.shared_expert.gate_proj.weight", "mlp, embed", "ffn.shared.gate"},
      {"model.layers.{}.mlp.shared_expert.up_proj.weight", "mlp, embed", "ffn.shared.up"},
      {"model.layers.{}.mlp.shared_expert.down_proj.weight", "embed, mlp", "ffn.shared.down"},
      {"model.layers.{}.mlp.shared_expert_gate.weight", " , embed", "ffn.shared_gate"},
  };
}

const FamilyRegistrar kQwen3Next{
    {.model_type = "qwen3_next",
     .architecture = "Qwen3NextForCausalLM",
     .members = qwen3_next_members,
     .weights =
         joined_rows({embedding_rows(), gated_attention_rows(), delta_net_rows(), expert_rows(),
                      shared_expert_rows(), gated_feed_forward_rows(), head_rows()}),
     .is_ignored = is_of_further_layer}};

}  // namespace
}  // namespace tessera
