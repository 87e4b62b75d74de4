// SPDX-License-Identifier: Apache-2.0
// Llama, and families that differ from it in a few members: Granite and SmolLM3.
#include "core/base/error.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

// Llama 1 to 3.3 (Touvron et al., 2023, arXiv 2302.13971; Grattafiori et al., 2024, arXiv
// 2407.21783).
void llama_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer);
    bind_attention_bias(config, attention, false);
    bind_rotary(config, attention, {});
    config.flag("mlp_bias", bind_gated_feed_forward(config, model, layer).use_bias, false);
  }
}

const FamilyRegistrar kLlama{{.model_type = "llama",
                              .architecture = "LlamaForCausalLM",
                              .members = llama_members,
                              .weights = joined_rows({embedding_rows(), attention_rows(),
                                                      gated_feed_forward_rows(), head_rows()}),
                              .preference = 1}};

// Granite 3 (2024): Llama with multipliers of embeddings, scores, residuals and logits, as in muP
// (Yang et al., 2022, arXiv 2203.03466).
void granite_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model);
  config.positive("embedding_multiplier", embedding_multiplier(model), 1.0);
  double divisor = 1.0 / softmax_options(model).multiplier;
  config.positive("logits_scaling", divisor, 1.0);
  softmax_options(model).multiplier = 1.0 / divisor;
  for (TransformerBlock::HParams& layer : model.layers) {
    config.positive("residual_multiplier", layer.residual_multiplier, 1.0);
    auto& attention = bind_attention(config, model, layer);
    config.positive("attention_multiplier", attention.query_scale, 1.0);
    bind_attention_bias(config, attention, false);
    bind_rotary(config, attention, {});
    config.flag("mlp_bias", bind_gated_feed_forward(config, model, layer).use_bias, false);
  }
}

const FamilyRegistrar kGranite{{.model_type = "granite",
                                .architecture = "GraniteForCausalLM",
                                .members = granite_members,
                                .weights = joined_rows({embedding_rows(), attention_rows(),
                                                        gated_feed_forward_rows(), head_rows()})}};

// 1 for a layer with rotary positions.
std::vector<int64_t> rotary_layers(ConfigMembers& config, const LayeredLm& model) {
  std::vector<int64_t> listed(model.layers.size(), 1), by_interval(model.layers.size(), 1);
  int64_t interval = 4;
  if (config.reads()) config.size("no_rope_layer_interval", interval, 4);
  for (size_t i = 0; i < listed.size(); ++i) {
    by_interval[i] = (static_cast<int64_t>(i) + 1) % interval != 0 ? 1 : 0;
    const auto& attention_tpl = model.layers[i].attention_tpl;
    if (attention_tpl.holds<DotProductAttention::HParams>())
      listed[i] = attention_tpl.as<DotProductAttention::HParams>().rotary_tpl.has() ? 1 : 0;
  }
  config.numbers("no_rope_layers", listed, by_interval);
  if (listed.size() != model.layers.size())
    fail("{}: no_rope_layers has {} numbers for {} layers", config.where(), listed.size(),
         model.layers.size());
  return listed;
}

// SmolLM3 (2025): Llama in which every fourth layer has no rotary positions (Yang et al., 2025,
// arXiv 2501.18795).
void smollm3_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model, {.tied = true});
  const std::vector<int64_t> rotary = rotary_layers(config, model);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    TransformerBlock::HParams& layer = model.layers[i];
    auto& attention = bind_attention(config, model, layer);
    bind_attention_bias(config, attention, false);
    if (rotary[i] != 0) bind_rotary(config, attention, {.theta = 2e6, .max_positions = 32768});
    config.flag("mlp_bias", bind_gated_feed_forward(config, model, layer).use_bias, false);
  }
  const auto slides = [&](size_t i) { return rotary[i] == 0; };
  bind_windows(config, model, {.has_switch = true, .layer_types = sliding_layers(model, slides)});
  config.ignore({"max_position_embeddings", "rope_parameters", "rope_theta",
                 "rope_scaling"});  // Where no layer has rotary positions.
}

const FamilyRegistrar kSmolLm3{{.model_type = "smollm3",
                                .architecture = "SmolLM3ForCausalLM",
                                .members = smollm3_members,
                                .weights = joined_rows({embedding_rows(), attention_rows(),
                                                        gated_feed_forward_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
