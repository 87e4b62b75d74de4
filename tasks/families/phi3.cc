// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-4 (Abdin et al., 2024, arXiv 2404.14219 and 2412.08905): Llama with fused
// projections.
#include <cmath>

#include "tasks/families/parts.h"

namespace tessera {
namespace {

// transformers' class of this family wants it beside rope_scaling.
void write_original_length(ConfigMembers& config, const DotProductAttention::HParams& attention) {
  if (config.reads()) return;
  const auto& rotary = attention.rotary_tpl.as<RotaryPositionEmbedding::HParams>();
  if (rotary.long_sequences)
    config.add("original_max_position_embeddings",
               std::to_string(std::llround(rotary.long_sequences->length)));
}

void phi3_members(ConfigMembers& config, LayeredLm& model) {
  bind_decoder(config, model, {.epsilon = 1e-5});
  config.rate("embd_pdrop", model.lm.embedding_dropout_rate, 0.0);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = bind_attention(config, model, layer);
    bind_rotary(config, attention, {.max_positions = 4096});
    write_original_length(config, attention);
    bind_gated_feed_forward(config, model, layer);
    config.rate("resid_pdrop", layer.residual_dropout_rate, 0.0);
  }
  bind_windows(config, model, {});
  config.only("attention_bias", false, "its projections have no bias", false);
  config.ignore("original_max_position_embeddings");  // Part of rope_scaling.
}

const FamilyRegistrar kPhi3{
    {.model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .members = phi3_members,
     .weights = {
         {"model.embed_tokens.weight", "vocab, embed", "embedding.w|softmax.w"},
         {"model.layers.{}.input_layernorm.weight", "embed", "attention_norm.scale"},
         {"model.layers.{}.self_attn.qkv_proj.weight", "+heads head_dim, embed", "attention.query"},
         {"model.layers.{}.self_attn.qkv_proj.weight", "+kv_heads head_dim, embed",
          "attention.key"},
         {"model.layers.{}.self_attn.qkv_proj.weight", "+kv_heads head_dim, embed",
          "attention.value"},
         {"model.layers.{}.self_attn.o_proj.weight", "embed, heads head_dim", "attention.output"},
         {"model.layers.{}.post_attention_layernorm.weight", "embed", "ffn_norm.scale"},
         {"model.layers.{}.mlp.gate_up_proj.weight", "+mlp, embed", "ffn.gate"},
         {"model.layers.{}.mlp.gate_up_proj.weight", "+mlp, embed", "ffn.up"},
         {"model.layers.{}.mlp.down_proj.weight", "embed, mlp", "ffn.down"},
         {"model.norm.weight", "embed", "final_ln.scale"},
         {"lm_head.weight", "vocab, embed", "softmax.w"},
     }}};

}  // namespace
}  // namespace tessera
