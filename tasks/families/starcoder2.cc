// SPDX-License-Identifier: Apache-2.0
// StarCoder2 (Lozhkov et al., 2024, arXiv 2402.19173): LayerNorm, biases everywhere, grouped
// queries and a feed-forward without gate.
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void starcoder2_members(ConfigMembers& config, LayeredLm& model) {
  bind_sizes(config, model);
  bind_head(config, model, true);
  bind_norms<LayerNorm::HParams>(config, model, "norm_epsilon", 1e-5);
  config.rate("embedding_dropout", model.lm.embedding_dropout_rate, 0.0);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer);
    config.flag("use_bias", attention.use_bias, true);
    bind_rotary(config, attention, {.max_positions = 4096});
    auto& ffn = bind_feed_forward(config, model, layer, "hidden_act", "gelu_pytorch_tanh");
    ffn.use_gated_activation = false;
    ffn.use_bias = attention.use_bias;
    config.rate("residual_dropout", layer.residual_dropout_rate, 0.0);
  }
  bind_windows(config, model, {});
  config.only("norm_type", "layer_norm", "expected LayerNorm");
  config.only("mlp_type", "default", "expected a feed-forward without gate");
}

std::vector<WeightRow> starcoder2_layer_rows() {
  return {
      {"model.layers.{}.post_attention_layernorm.weight", "embed", "ffn_norm.scale"},
      {"model.layers.{}.mlp.c_fc.weight", "mlp, embed", "ffn.up"},
      {"model.layers.{}.mlp.c_proj.weight", "embed, mlp", "ffn.down"},
  };
}

const FamilyRegistrar kStarcoder2{{.model_type = "starcoder2",
                                   .architecture = "Starcoder2ForCausalLM",
                                   .members = starcoder2_members,
                                   .weights = joined_rows({embedding_rows(), attention_rows(),
                                                           starcoder2_layer_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
