// SPDX-License-Identifier: Apache-2.0
// Qwen3 (Yang et al., 2025, arXiv 2505.09388): Llama with norms of queries and keys in each head.
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void qwen3_members(ConfigMembers& config, LayeredLm& model) {
  bind_sizes(config, model);
  bind_head(config, model, false);
  bind_norms<RmsNorm::HParams>(config, model, "rms_norm_eps", 1e-6);
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

}  // namespace
}  // namespace tessera
