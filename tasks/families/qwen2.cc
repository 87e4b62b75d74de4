// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5 (Yang et al., 2024, arXiv 2407.10671): Llama with biases of queries, keys and
// values.
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void qwen2_members(ConfigMembers& config, LayeredLm& model) {
  bind_sizes(config, model);
  bind_head(config, model, false);
  bind_norms<RmsNorm::HParams>(config, model, "rms_norm_eps", 1e-6);
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

}  // namespace
}  // namespace tessera
