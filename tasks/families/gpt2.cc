// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al., 2019). Weights of transformers' Conv1D have inputs first, as ours.
#include <cmath>

#include "core/base/error.h"
#include "layers/embeddings/position_embedding.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

// Layer i = 1, 2, … divides its scores by i.
void bind_gpt2_layer_scale(ConfigMembers& config, LayeredLm& model) {
  const auto attention = [&](size_t layer) -> DotProductAttention::HParams& {
    return model.layers[layer].attention_tpl.as<DotProductAttention::HParams>();
  };
  const auto scale = [&](size_t layer) { return attention(layer).query_scale.get_or(1.0); };
  bool by_layer = model.layers.size() > 1 && scale(0) > 1.5 * scale(1);
  config.flag("scale_attn_by_inverse_layer_idx", by_layer, false);
  if (!config.reads() || !by_layer) return;
  for (size_t i = 0; i < model.layers.size(); ++i)
    attention(i).query_scale =
        1.0 / (std::sqrt(static_cast<double>(attention(i).dims_per_head.get())) *
               static_cast<double>(i + 1));
}

void gpt2_members(ConfigMembers& config, LayeredLm& model) {
  TransformerLm::HParams& lm = model.lm;
  bind_sizes(config, model, {.embed = "n_embd", .layers = "n_layer", .heads = "n_head"});
  const int64_t embed = lm.model_dims.get(), heads = lm.num_heads.get();
  if (embed % heads != 0)
    fail("{}: n_head={} does not divide n_embd={}", config.where(), heads, embed);
  bind_head(config, model, true);
  bind_norms<LayerNorm::HParams>(config, model, "layer_norm_epsilon", 1e-5);
  auto& positions =
      config.part<TrainablePositionalEmbedding::HParams>(lm.position_emb_tpl, "position_emb_tpl");
  config.size("n_positions", positions.max_seq_length, {}, ConfigMembers::kMostTokens);
  config.rate("embd_pdrop", lm.embedding_dropout_rate, 0.1);
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention =
        config.part<DotProductAttention::HParams>(layer.attention_tpl, "attention_tpl");
    attention.use_bias = true;
    attention.dims_per_head = embed / heads;
    config.rate("attn_pdrop", attention.dropout_rate, 0.1);
    config.rate("resid_pdrop", layer.residual_dropout_rate, 0.1);
    auto& ffn = config.part<FeedForward::HParams>(layer.ffn_tpl, "ffn_tpl");
    ffn.use_bias = true;
    if (!config.reads()) lm.hidden_dims = ffn.hidden_dims.get_or(1);
    config.size("n_inner", lm.hidden_dims, 4 * embed, ConfigMembers::kMostHidden);
    config.activation("activation_function", ffn.activation_tpl, "gelu_new");
  }
  bind_gpt2_layer_scale(config, model);
  config.only("scale_attn_weights", true, "expected scores divided by √head_dim", true);
  config.ignore({"n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
                 "summary_proj_to_labels", "summary_type", "summary_use_proj"});
  config.only("add_cross_attention", false, "expected a decoder only", false);
}

const FamilyRegistrar kGpt2{
    {.model_type = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .members = gpt2_members,
     .weights = {
         {"transformer.wte.weight", "vocab, embed", "embedding.w|softmax.w"},
         {"transformer.wpe.weight", "positions, embed", "position_emb.w"},
         {"transformer.h.{}.ln_1.weight", "embed", "attention_norm.scale"},
         {"transformer.h.{}.attn.c_attn.weight", "embed, +heads head_dim", "attention.query"},
         {"transformer.h.{}.attn.c_attn.weight", "embed, +kv_heads head_dim", "attention.key"},
         {"transformer.h.{}.attn.c_attn.weight", "embed, +kv_heads head_dim", "attention.value"},
         {"transformer.h.{}.attn.c_attn.bias", "+heads head_dim", "attention.query_bias"},
         {"transformer.h.{}.attn.c_attn.bias", "+kv_heads head_dim", "attention.key_bias"},
         {"transformer.h.{}.attn.c_attn.bias", "+kv_heads head_dim", "attention.value_bias"},
         {"transformer.h.{}.attn.c_proj.weight", "heads head_dim, embed", "attention.output"},
         {"transformer.h.{}.attn.c_proj.bias", "embed", "attention.output_bias"},
         {"transformer.h.{}.ln_2.weight", "embed", "ffn_norm.scale"},
         {"transformer.h.{}.mlp.c_fc.weight", "embed, mlp", "ffn.up"},
         {"transformer.h.{}.mlp.c_fc.bias", "mlp", "ffn.up_bias"},
         {"transformer.h.{}.mlp.c_proj.weight", "mlp, embed", "ffn.down"},
         {"transformer.h.{}.mlp.c_proj.bias", "embed", "ffn.down_bias"},
         {"transformer.ln_f.weight", "embed", "final_ln.scale"},
         {"lm_head.weight", "vocab, embed", "softmax.w"},
     }}};

}  // namespace
}  // namespace tessera
