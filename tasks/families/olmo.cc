// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (2025, arXiv 2501.00656): norms after each sublayer in place of before, and norms of all
// queries and all keys of a token. OLMo 3 (2025, arXiv 2512.13961) has a window in three of four
// layers, and rotary positions that are stretched in the fourth alone.
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void olmo2_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model, {.epsilon = 1e-5, .policy = NormPolicy::kPostSkip});
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

void olmo3_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model, {.epsilon = 1e-5, .policy = NormPolicy::kPostSkip});
  bind_windows(config, model,
               {.otherwise = 4096,
                .layer_types = sliding_layers(model, [](size_t i) { return (i + 1) % 4 != 0; })});
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer);
    bind_attention_bias(config, attention, false);
    bind_all_heads_norms(config, model, attention, layer);
    bind_gated_feed_forward(config, model, layer);
  }
  bind_rotary_by_type(config, model, {.theta = 500000.0}, {.theta = 500000.0});
}

const FamilyRegistrar kOlmo3{
    {.model_type = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .members = olmo3_members,
     .weights = joined_rows({embedding_rows(), attention_rows(), all_heads_norm_rows(),
                             post_norm_rows(), mlp_rows(), head_rows()})}};

}  // namespace
}  // namespace tessera
