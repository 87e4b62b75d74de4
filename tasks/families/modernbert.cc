// SPDX-License-Identifier: Apache-2.0
// ModernBERT (Warner et al., 2024, arXiv 2412.13663), a masked language model: norms before each
// sublayer, rotary positions, and a window around each token in two of three layers.
#include "core/base/error.h"
#include "layers/feed_forward/feed_forward.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

// local_attention: the tokens around each one in the layers that layer_types names; half of them,
// rounded down, are before it: of 1, none.
void bind_local_attention(ConfigMembers& config, LayeredLm& model) {
  int64_t around = 128, period = 3;
  if (config.reads()) config.size("global_attn_every_n_layers", period, 3);
  for (TransformerBlock::HParams& layer : model.layers)
    if (const auto& window = attention_in(layer).window; window.has())
      around = window.get() == 1 ? 1 : 2 * (window.get() - 1);
  std::vector<std::string> types = sliding_layers(model, [&](size_t i) {
    return config.reads() ? static_cast<int64_t>(i) % period != 0
                          : attention_in(model.layers[i]).window.has();
  });
  config.size("local_attention", around, 128, ConfigMembers::kMostTokens);
  bind_layer_types(config, model, types);
  for (size_t i = 0; i < types.size(); ++i)
    if (types[i] == kSlidingAttention) attention_in(model.layers[i]).window = around / 2 + 1;
}

void bind_norm(ConfigMembers& config, Template<UnaryLayer>& norm_tpl, std::string_view path) {
  auto& norm = config.part<LayerNorm::HParams>(norm_tpl, path);
  config.positive("norm_eps", norm.epsilon, 1e-5);
  config.flag("norm_bias", norm.use_bias, false);
}

void bind_layer(ConfigMembers& config, LayeredLm& model, TransformerBlock::HParams& layer) {
  layer.norm_policy = NormPolicy::kPre;
  bind_norm(config, layer.norm_tpl, "norm_tpl");
  auto& attention = config.part<DotProductAttention::HParams>(layer.attention_tpl, "attention_tpl");
  attention.causal = false;
  attention.dims_per_head = model.lm.model_dims.get() / model.lm.num_heads.get();
  bind_attention_bias(config, attention, false);
  config.rate("attention_dropout", attention.dropout_rate, 0.0);
  auto& ffn = bind_gated_feed_forward(config, model, layer, "hidden_activation", "gelu");
  config.flag("mlp_bias", ffn.use_bias, false);
  config.rate("mlp_dropout", ffn.dropout_rate, 0.0);
}

void bind_masked_head(ConfigMembers& config, TransformerLm::HParams& lm) {
  auto& head = config.part<HeadTransform::HParams>(lm.head_tpl, "head_tpl");
  config.flag("classifier_bias", head.use_bias, false);
  config.activation("classifier_activation", head.activation_tpl, "gelu");
  bind_norm(config, head.norm_tpl, "head_tpl.norm_tpl");
  bool& bias = lm.softmax_tpl.holds<FullSoftmax::HParams>()
                   ? lm.softmax_tpl.as<FullSoftmax::HParams>().use_bias
                   : lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().use_bias;
  config.flag("decoder_bias", bias, true);
}

void modernbert_members(ConfigMembers& config, LayeredLm& model) {
  TransformerLm::HParams& lm = model.lm;
  bind_sizes(config, model);
  if (const int64_t embed = lm.model_dims.get(), heads = lm.num_heads.get(); embed % heads != 0)
    fail("{}: num_attention_heads={} does not divide hidden_size={}", config.where(), heads, embed);
  bind_head(config, model, true);
  bind_norm(config, lm.embedding_ln_tpl, "embedding_ln_tpl");
  bind_norm(config, lm.final_ln_tpl, "final_ln_tpl");
  config.rate("embedding_dropout", lm.embedding_dropout_rate, 0.0);
  for (TransformerBlock::HParams& layer : model.layers) bind_layer(config, model, layer);
  model.layers[0].use_attention_norm = false;  // The embeddings' norm is before it.
  bind_local_attention(config, model);
  config.absent("rope_scaling", "expected rope_parameters, with rotary positions by kind of layer");
  bind_rotary_by_type(config, model, {.max_positions = 8192, .theta_name = "local_rope_theta"},
                      {.theta = 160000.0,
                       .max_positions = 8192,
                       .theta_name = "global_rope_theta",
                       .has_scaling = false});
  bind_masked_head(config, lm);
  config.ignore({"classifier_dropout", "classifier_pooling", "cls_token_id",
                 "deterministic_flash_attn", "global_rope_theta", "gradient_checkpointing",
                 "initializer_cutoff_factor", "layer_norm_eps", "local_rope_theta",
                 "position_embedding_type", "reference_compile", "repad_logits_with_grad",
                 "sparse_pred_ignore_index", "sparse_prediction"});
}

// Copies of the table, beside it.
bool modernbert_ignores(std::string_view name, const LayeredLm& model) {
  return name == "decoder.weight" && !model.has_own_head();
}

const FamilyRegistrar kModernBert{
    {.model_type = "modernbert",
     .architecture = "ModernBertForMaskedLM",
     .members = modernbert_members,
     .weights =
         {
             {"model.embeddings.tok_embeddings.weight", "vocab, embed", "embedding.w|softmax.w"},
             {"model.embeddings.norm.weight", "embed", "embedding_ln.scale"},
             {"model.layers.{}.attn_norm.weight", "embed", "attention_norm.scale"},
             {"model.layers.{}.attn.Wqkv.weight", "+heads head_dim, embed", "attention.query"},
             {"model.layers.{}.attn.Wqkv.weight", "+kv_heads head_dim, embed", "attention.key"},
             {"model.layers.{}.attn.Wqkv.weight", "+kv_heads head_dim, embed", "attention.value"},
             {"model.layers.{}.attn.Wo.weight", "embed, heads head_dim", "attention.output"},
             {"model.layers.{}.mlp_norm.weight", "embed", "ffn_norm.scale"},
             {"model.layers.{}.mlp.Wi.weight", "+mlp, embed", "ffn.gate"},
             {"model.layers.{}.mlp.Wi.weight", "+mlp, embed", "ffn.up"},
             {"model.layers.{}.mlp.Wo.weight", "embed, mlp", "ffn.down"},
             {"model.final_norm.weight", "embed", "final_ln.scale"},
             {"head.dense.weight", "mlp, embed", "head.w"},
             {"head.norm.weight", "embed", "head.norm.scale"},
             {"decoder.weight", "vocab, embed", "softmax.w"},
         },
     .is_ignored = modernbert_ignores}};

}  // namespace
}  // namespace tessera
