// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5 (Yang et al., 2024, arXiv 2407.10671): Llama with biases of queries, keys and
// values. Qwen3 (Yang et al., 2025, arXiv 2505.09388) has norms of queries and keys in each head;
// Qwen3-MoE also experts in all layers, in every decoder_sparse_step-th, or in those that
// mlp_only_layers does not list. Qwen3-Next (Qwen Team, 2025) has Gated DeltaNet in three of four
// layers, attention with gates in the others, and experts with a gate for the shared one; all norms
// but Gated DeltaNet's are stored minus 1.
#include <algorithm>

#include "core/base/error.h"
#include "layers/attention/gated_delta_net.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

// A window, if it is switched on, in the layers from max_window_layers on.
void bind_late_windows(ConfigMembers& config, LayeredLm& model) {
  int64_t first = 28;
  if (const Json* found = config.find("max_window_layers")) first = found->as_integer();
  const auto slides = [&](size_t i) { return static_cast<int64_t>(i) >= first; };
  bind_windows(
      config, model,
      {.otherwise = 4096, .has_switch = true, .layer_types = sliding_layers(model, slides)});
}

// mlp_only_layers and decoder_sparse_step: whether each layer is dense.
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

// The experts of a layer, with its router.
struct Qwen3ExpertDefaults {
  int64_t width = 768, count = 128;
  RouterDefaults router = {};
};
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

void qwen2_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer);
    attention.use_bias = true;
    attention.use_output_bias = false;
    bind_rotary(config, attention, {.max_positions = 32768});
    bind_gated_feed_forward(config, model, layer);
  }
  bind_late_windows(config, model);
}

const FamilyRegistrar kQwen2{{.model_type = "qwen2",
                              .architecture = "Qwen2ForCausalLM",
                              .members = qwen2_members,
                              .weights = joined_rows({embedding_rows(), attention_rows(),
                                                      gated_feed_forward_rows(), head_rows()})}};

void qwen3_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer, {.head_dim = 128});
    bind_attention_bias(config, attention, false);
    bind_head_norms(config, attention, layer);
    bind_rotary(config, attention, {.max_positions = 32768});
    bind_gated_feed_forward(config, model, layer);
  }
  bind_late_windows(config, model);
}

const FamilyRegistrar kQwen3{
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .members = qwen3_members,
     .weights = joined_rows({embedding_rows(), attention_rows(), head_norm_rows(),
                             gated_feed_forward_rows(), head_rows()})}};

void qwen3_moe_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model);
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
  bind_decoder(config, model);
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
bool is_of_further_head(std::string_view name, const LayeredLm&) {
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
  std::vector<WeightRow> rows = attention_rows();
  const auto query = std::ranges::find(rows, "attention.query", &WeightRow::ours);
  query->axes = "heads +head_dim, embed";
  rows.insert(query + 1, {query->theirs, query->axes, "attention.gate"});
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
     .is_ignored = is_of_further_head}};

}  // namespace
}  // namespace tessera
