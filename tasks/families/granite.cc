// SPDX-License-Identifier: Apache-2.0
// Granite 3 (2024): Llama with multipliers of embeddings, scores, residuals and logits, as in muP
// (Yang et al., 2022, arXiv 2203.03466).
#include "tasks/families/parts.h"

namespace tessera {
namespace {

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
    auto& ffn = bind_gated_feed_forward(config, model, layer);
    config.flag("mlp_bias", ffn.use_bias, false);
  }
}

const FamilyRegistrar kGranite{{.model_type = "granite",
                                .architecture = "GraniteForCausalLM",
                                .members = granite_members,
                                .weights = joined_rows({embedding_rows(), attention_rows(),
                                                        gated_feed_forward_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
