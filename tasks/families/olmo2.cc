// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (2025, arXiv 2501.00656): norms after each sublayer in place of before, and norms of all
// queries and all keys of a token.
#include "layers/norms/norms.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void olmo2_members(ConfigMembers& config, LayeredLm& model) {
  bind_sizes(config, model);
  bind_head(config, model, false);
  bind_norms<RmsNorm::HParams>(config, model, "rms_norm_eps", 1e-5, NormPolicy::kPostSkip);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer);
    bind_attention_bias(config, attention, false);
    bind_all_heads_norms(config, model, attention, layer);
    bind_rotary(config, attention, {});
    bind_gated_feed_forward(config, model, layer);
  }
}

const FamilyRegistrar kOlmo2{
    {.model_type = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .members = olmo2_members,
     .weights = joined_rows({embedding_rows(), attention_rows(), all_heads_norm_rows(),
                             post_norm_rows(), mlp_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
