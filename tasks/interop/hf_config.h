// SPDX-License-Identifier: Apache-2.0
// Hugging Face's config.json of the architectures that are read and written: GPT-2 and Llama. What
// it says of a model, as a struct; which model of ours that is, hf_model.h knows.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/enum_names.h"
#include "layers/feed_forward/activations.h"
#include "layers/embeddings/position_embedding.h"

namespace tessera {

enum class HfFamily { kGpt2, kLlama };

constexpr std::array<EnumName<HfFamily>, 2> enum_names(HfFamily) {
  return {{{HfFamily::kGpt2, "gpt2"}, {HfFamily::kLlama, "llama"}}};
}

struct HfConfig {
  HfFamily family = HfFamily::kGpt2;
  int64_t vocab_size = 0;
  int64_t model_dims = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t hidden_dims = 0;
  int64_t max_positions = 0;  // Of GPT-2 the size of a table; of Llama advice.
  double norm_epsilon = 0.0;
  std::string activation;  // By the first of its names.
  bool tied = false;       // The embedding is the softmax's table.
  // Llama's. GPT-2 has every bias.
  bool attention_bias = false;
  bool mlp_bias = false;
  double rope_theta = 10000.0;
  double rope_factor = 1.0;      // Positions are divided by it ("linear"); 1: they are not.
  RotaryStretchHParams stretch;  // "llama3"; a factor of 1: none.
  // In training; of no account when configurations are compared.
  double residual_dropout = 0.0;
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
};

// Error for what is missing, of a wrong type or out of range, and for a model that only sounds like
// one of these (quantised weights, other rotations, attention to something else); `where` is the
// file. Members that tell nothing about logits are passed over.
HfConfig parse_hf_config(std::string_view text, const std::string& where);

// Ids that text generation begins and ends with; negative: not known.
struct HfSpecialIds {
  int64_t begin = -1;
  int64_t end = -1;
};
// The text of config.json: `dtype` as PyTorch calls it ("float32"). Read back, it is the same.
std::string hf_config_text(const HfConfig& config, std::string_view dtype,
                           const HfSpecialIds& special = {});

// "n_embd: 64 in config.json, 128 in the experiment", for all in which they differ.
std::vector<std::string> hf_differences(const HfConfig& file, const HfConfig& experiment);

// Activations by Hugging Face's names; of several names for one, the first is written.
Template<Activation> hf_activation(const std::string& name, const std::string& where);
std::string hf_activation_name(const Template<Activation>& activation);  // "" if it has none.

}  // namespace tessera
