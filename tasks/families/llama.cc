// SPDX-License-Identifier: Apache-2.0
// Llama 1 to 3.3 (Touvron et al., 2023, arXiv 2302.13971; Grattafiori et al., 2024, arXiv
// 2407.21783).
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void llama_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer);
    bind_attention_bias(config, attention, false);
    bind_rotary(config, attention, {});
    auto& ffn = bind_gated_feed_forward(config, model, layer);
    config.flag("mlp_bias", ffn.use_bias, false);
  }
}

const FamilyRegistrar kLlama{{.model_type = "llama",
                              .architecture = "LlamaForCausalLM",
                              .members = llama_members,
                              .weights = joined_rows({embedding_rows(), attention_rows(),
                                                      gated_feed_forward_rows(), head_rows()}),
                              .preference = 1}};

}  // namespace
}  // namespace tessera
