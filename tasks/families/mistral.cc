// SPDX-License-Identifier: Apache-2.0
// Mistral (Jiang et al., 2023, arXiv 2310.06825): Llama without biases, with attention in a window
// in the first release.
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void mistral_members(ConfigMembers& config, LayeredLm& model) {
  bind_sizes(config, model);
  bind_head(config, model, false);
  bind_norms<RmsNorm::HParams>(config, model, "rms_norm_eps", 1e-6);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer, {.needs_kv_heads = true});
    bind_rotary(config, attention, {.max_positions = 131072});
    bind_gated_feed_forward(config, model, layer);
  }
  bind_windows(config, model, {.otherwise = 4096});
}

const FamilyRegistrar kMistral{{.model_type = "mistral",
                                .architecture = "MistralForCausalLM",
                                .members = mistral_members,
                                .weights = joined_rows({embedding_rows(), attention_rows(),
                                                        gated_feed_forward_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
