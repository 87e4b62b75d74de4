// SPDX-License-Identifier: Apache-2.0
// Gemma (2024, arXiv 2403.08295): embeddings are multiplied by √hidden_size, and scales of norms
// are stored minus 1.
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void gemma_members(ConfigMembers& config, LayeredLm& model) {
  bind_gemma(config, model);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = layer.attention_tpl.as<DotProductAttention::HParams>();
    bind_rotary(config, attention, {.max_positions = 8192});
    auto& ffn = bind_gated_feed_forward(config, model, layer, "hidden_act", "gelu_pytorch_tanh");
    // In the first files "gelu" meant the approximation, and transformers reads it so.
    if (ffn.activation_tpl.holds<GELU::HParams>()) ffn.activation_tpl = GELU::HParams{};
  }
  config.ignore("hidden_activation");
}

const FamilyRegistrar kGemma{{.model_type = "gemma",
                              .architecture = "GemmaForCausalLM",
                              .members = gemma_members,
                              .weights = joined_rows({embedding_rows(), attention_rows(),
                                                      gated_feed_forward_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
