// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX and Pythia (Black et al., 2022, arXiv 2204.06745): both sublayers read the block's
// input, and a part of each head is rotated.
#include "core/base/error.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void gpt_neox_members(ConfigMembers& config, LayeredLm& model) {
  TransformerLm::HParams& lm = model.lm;
  bind_sizes(config, model);
  const int64_t embed = lm.model_dims.get(), heads = lm.num_heads.get();
  if (embed % heads != 0)
    fail("{}: num_attention_heads={} does not divide hidden_size={}", config.where(), heads, embed);
  bind_head(config, model, false);
  bind_norms<LayerNorm::HParams>(config, model, "layer_norm_eps", 1e-5);
  for (TransformerBlock::HParams& layer : model.layers) {
    config.flag("use_parallel_residual", layer.parallel, true);
    auto& attention =
        config.part<DotProductAttention::HParams>(layer.attention_tpl, "attention_tpl");
    attention.num_kv_heads = heads;
    attention.dims_per_head = embed / heads;
    bind_attention_bias(config, attention, true);
    config.rate("attention_dropout", attention.dropout_rate, 0.0);
    // Names of transformers before version 5.
    bind_rotary(config, attention,
                {.theta_name = "rotary_emb_base", .share_name = "rotary_pct", .share = 0.25});
    auto& ffn = bind_feed_forward(config, model, layer, "hidden_act", "gelu");
    ffn.use_gated_activation = false;
    ffn.use_bias = true;
    config.rate("hidden_dropout", layer.residual_dropout_rate, 0.0);
  }
  config.ignore("classifier_dropout");
}

const FamilyRegistrar kGptNeox{
    {.model_type = "gpt_neox",
     .architecture = "GPTNeoXForCausalLM",
     .members = gpt_neox_members,
     .weights = {
         {"gpt_neox.embed_in.weight", "vocab, embed", "embedding.w|softmax.w"},
         {"gpt_neox.layers.{}.input_layernorm.weight", "embed", "attention_norm.scale"},
         {"gpt_neox.layers.{}.attention.query_key_value.weight", "heads +head_dim, embed",
          "attention.query"},
         {"gpt_neox.layers.{}.attention.query_key_value.weight", "kv_heads +head_dim, embed",
          "attention.key"},
         {"gpt_neox.layers.{}.attention.query_key_value.weight", "kv_heads +head_dim, embed",
          "attention.value"},
         {"gpt_neox.layers.{}.attention.dense.weight", "embed, heads head_dim", "attention.output"},
         {"gpt_neox.layers.{}.post_attention_layernorm.weight", "embed", "ffn_norm.scale"},
         {"gpt_neox.layers.{}.mlp.dense_h_to_4h.weight", "mlp, embed", "ffn.up"},
         {"gpt_neox.layers.{}.mlp.dense_4h_to_h.weight", "embed, mlp", "ffn.down"},
         {"gpt_neox.final_layer_norm.weight", "embed", "final_ln.scale"},
         {"embed_out.weight", "vocab, embed", "softmax.w"},
     }}};

}  // namespace
}  // namespace tessera
