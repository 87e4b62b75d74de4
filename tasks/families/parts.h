// SPDX-License-Identifier: Apache-2.0
// Members of config.json and tensors that many families have in common, under the names that Llama
// gave them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "layers/attention/latent_attention.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/experts/moe_feed_forward.h"
#include "tasks/families/config_members.h"
#include "tasks/families/hf_family.h"
#include "tasks/families/layered_lm.h"

namespace tessera {

inline constexpr int64_t kMostLayers = 4096;

struct SizeNames {
  std::string_view vocab = "vocab_size", embed = "hidden_size", layers = "num_hidden_layers",
                   heads = "num_attention_heads";
};
void bind_sizes(ConfigMembers& config, LayeredLm& model, const SizeNames& names = {});

// tie_word_embeddings.
void bind_head(ConfigMembers& config, LayeredLm& model, bool tied_by_default);

// The epsilon of all norms, which are of this class; before each sublayer, unless `policy` differs.
template <typename Norm>
void bind_norms(ConfigMembers& config, LayeredLm& model, std::string_view epsilon, double otherwise,
                NormPolicy policy = NormPolicy::kPre) {
  config.positive(epsilon, config.part<Norm>(model.lm.final_ln_tpl, "final_ln_tpl").epsilon,
                  otherwise);
  for (TransformerBlock::HParams& layer : model.layers) {
    layer.norm_policy = policy;
    config.positive(epsilon, config.part<Norm>(layer.norm_tpl, "norm_tpl").epsilon, otherwise);
  }
}

// Sizes, the head and RmsNorm, with which most families begin.
struct DecoderDefaults {
  double epsilon = 1e-6;
  bool tied = false;
  NormPolicy policy = NormPolicy::kPre;
};
void bind_decoder(ConfigMembers& config, LayeredLm& model, const DecoderDefaults& defaults = {});

// num_key_value_heads (all, unless required), head_dim, attention_dropout of a layer's
// DotProductAttention.
struct AttentionDefaults {
  bool needs_kv_heads = false;
  int64_t head_dim = 0;  // 0: model_dims / num_heads.
};
DotProductAttention::HParams& bind_attention(ConfigMembers& config, const LayeredLm& model,
                                             TransformerBlock::HParams& layer,
                                             const AttentionDefaults& defaults = {});

// rope_theta and rope_scaling, or rope_parameters: those of a kind of layers, if it has an entry of
// that name; and max_position_embeddings.
struct RotaryDefaults {
  double theta = 10000.0;
  int64_t max_positions = 2048;
  std::string_view layer_type = "";
  std::string_view theta_name = "rope_theta";
  std::string_view share_name = "partial_rotary_factor";
  double share = 1.0;
  bool has_scaling = true;  // rope_scaling is of these layers.
};
void bind_rotary(ConfigMembers& config, DotProductAttention::HParams& attention,
                 const RotaryDefaults& defaults);

// Rotary positions of layers with a window and of the others, after bind_attention of all.
void bind_rotary_by_type(ConfigMembers& config, LayeredLm& model, RotaryDefaults sliding,
                         RotaryDefaults full);

// Rotary positions of latent attention, with DeepSeek's factor of scores.
void bind_latent_rotary(ConfigMembers& config, LatentAttention::HParams& attention,
                        const RotaryDefaults& defaults);

// hidden_act and intermediate_size of a layer's FeedForward.
FeedForward::HParams& bind_gated_feed_forward(ConfigMembers& config, LayeredLm& model,
                                              TransformerBlock::HParams& layer,
                                              std::string_view activation = "hidden_act",
                                              const std::string& otherwise = "silu");

// A feed-forward whose gate is left as it is: activation and width.
FeedForward::HParams& bind_feed_forward(ConfigMembers& config, LayeredLm& model,
                                        TransformerBlock::HParams& layer,
                                        std::string_view activation, const std::string& otherwise);

// Windows of attention, of all layers or of those that layer_types names. Before rotary positions,
// which may differ in these.
inline constexpr std::string_view kSlidingWindow = "sliding_window";
inline constexpr std::string_view kSlidingAttention = "sliding_attention",
                                  kFullAttention = "full_attention";
struct WindowRule {
  int64_t otherwise = 0;                 // Where sliding_window is absent; 0: none.
  bool has_switch = false;               // use_sliding_window.
  std::vector<std::string> layer_types;  // Where it is absent; empty: the family does not have it.
};
void bind_windows(ConfigMembers& config, LayeredLm& model, const WindowRule& rule);
// layer_types, which are these where it is absent; beside full attention there is one other type.
void bind_layer_types(ConfigMembers& config, const LayeredLm& model,
                      std::vector<std::string>& types, std::string_view other = kSlidingAttention);
// layer_types with a window in these layers.
std::vector<std::string> sliding_layers(const LayeredLm& model,
                                        const std::function<bool(size_t)>& slides);

// The width of experts, which is also that of the model.
void bind_expert_width(ConfigMembers& config, LayeredLm& model, MoeFeedForward::HParams& experts,
                       std::string_view name);
// num_experts_per_tok, norm_topk_prob and router_aux_loss_coef of a TopKRouter without capacity.
struct RouterDefaults {
  int64_t top_k = 8;
  bool normalizes_weights = false;
};
void bind_router(ConfigMembers& config, const LayeredLm& model, MoeFeedForward::HParams& experts,
                 double loss_coefficient, const RouterDefaults& defaults = {});

// Error if a token chooses more experts than there are.
void check_top_k(const ConfigMembers& config, int64_t top_k,
                 const MoeFeedForward::HParams& experts);

// router_aux_loss_coef. transformers' loss is of the choices and scores of all layers together, and
// counts every choice of a token as one; ours is of each layer, with choices as fractions of all.
// They are equal if all layers route alike: theirs·coef = top_k·(ours of one layer)·coef.
void bind_balance_loss(ConfigMembers& config, const LayeredLm& model, TopKRouter::HParams& router,
                       double otherwise);

// attention_bias: of queries, keys, values and the output.
void bind_attention_bias(ConfigMembers& config, DotProductAttention::HParams& attention,
                         bool otherwise);

// RmsNorm of queries and keys over head_dim, with the epsilon of the layer's other norms.
void bind_head_norms(ConfigMembers& config, DotProductAttention::HParams& attention,
                     const TransformerBlock::HParams& layer);

// HeadsRmsNorm of queries and keys, likewise.
void bind_all_heads_norms(ConfigMembers& config, const LayeredLm& model,
                          DotProductAttention::HParams& attention,
                          const TransformerBlock::HParams& layer);

DotProductAttention::HParams& attention_in(TransformerBlock::HParams& layer);
SoftmaxOptions& softmax_options(LayeredLm& model);
double& embedding_multiplier(LayeredLm& model);

// Lists of rows, joined.
std::vector<WeightRow> joined_rows(std::initializer_list<std::vector<WeightRow>> parts);
// model.embed_tokens, and model.norm with lm_head.
std::vector<WeightRow> embedding_rows();
std::vector<WeightRow> head_rows();
// input_layernorm and self_attn, with biases where the model has them.
std::vector<WeightRow> attention_rows();
// self_attn.q_norm and k_norm over head_dim.
std::vector<WeightRow> head_norm_rows();
// self_attn.q_norm and k_norm over all heads.
std::vector<WeightRow> all_heads_norm_rows();
// gate_proj, up_proj and down_proj of mlp, with biases where the model has them.
std::vector<WeightRow> mlp_rows();
// mlp_rows() after the norm post_attention_layernorm.
std::vector<WeightRow> gated_feed_forward_rows();
// mlp.gate, and gate_proj, up_proj and down_proj of each expert.
std::vector<WeightRow> expert_rows();
// Norms after attention and after the feed-forward.
std::vector<WeightRow> post_norm_rows();

}  // namespace tessera
