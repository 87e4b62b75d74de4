// SPDX-License-Identifier: Apache-2.0
// Hugging Face's config.json of the supported architectures, GPT-2, Llama and Mixtral, as a
// struct. hf_model.h converts it to and from our layers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/feed_forward/activations.h"

namespace tessera {

// Mixtral is a Llama with experts (Jiang et al., 2024).
enum class HfFamily { kGpt2, kLlama, kMixtral };

struct HfConfig {
  HfFamily family = HfFamily::kGpt2;
  int64_t vocab_size = 0;
  int64_t model_dims = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t hidden_dims = 0;
  int64_t max_positions = 0;  // For GPT-2 the size of a table; otherwise informational.
  double norm_epsilon = 0.0;
  std::string activation;  // The first of its names.
  bool tied = false;       // Embedding and softmax share a table.
  // GPT-2 only: divides the scores of layer i = 1, 2, … by i (scale_attn_by_inverse_layer_idx).
  bool inverse_layer_scale = false;
  // Llama only: GPT-2 has every bias, Mixtral has none.
  bool attention_bias = false;
  bool mlp_bias = false;
  // With rotary positions.
  double rope_theta = 10000.0;
  double rope_factor = 1.0;      // Divides positions ("linear"); 1: none.
  RotaryStretchHParams stretch;  // "llama3"; factor 1: none.
  // Mixtral only; 0: a dense feed-forward.
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  // Used only in training; ignored when configurations are compared.
  double residual_dropout = 0.0;
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  double router_loss_coef = 0.0;  // Mixtral's router_aux_loss_coef.
  double router_jitter = 0.0;
};

// Parses config.json. Error for missing members, wrong types, values out of range, and features
// that our models lack (quantised weights, other rotary scalings, a sliding window of Mixtral that
// is shorter than max_position_embeddings); `where` is the file. Members without effect on logits
// are ignored.
HfConfig parse_hf_config(std::string_view text, const std::string& where);

// Token ids that begin and end generated text; negative: unknown.
struct HfSpecialIds {
  int64_t begin = -1;
  int64_t end = -1;
};
// The text of config.json, which parses to the same struct; `dtype` as PyTorch calls it
// ("float32").
std::string hf_config_text(const HfConfig& config, std::string_view dtype,
                           const HfSpecialIds& special = {});

// The differences, as "n_embd: 64 in config.json, 128 in the experiment".
std::vector<std::string> hf_differences(const HfConfig& file, const HfConfig& experiment);

// Activations by Hugging Face's names; the first of several names is written.
Template<Activation> hf_activation(const std::string& name, const std::string& where);
std::string hf_activation_name(
    const Template<Activation>& activation);  // "" if it has no name there.

}  // namespace tessera
