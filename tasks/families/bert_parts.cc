// SPDX-License-Identifier: Apache-2.0
#include "tasks/families/bert_parts.h"

#include "core/base/error.h"

namespace tessera {
namespace {

void bind_norm(ConfigMembers& config, Template<UnaryLayer>& norm_tpl, std::string_view path) {
  config.positive("layer_norm_eps", config.part<LayerNorm::HParams>(norm_tpl, path).epsilon, 1e-12);
}

void bind_layer(ConfigMembers& config, LayeredLm& model, TransformerBlock::HParams& layer) {
  layer.norm_policy = NormPolicy::kPost;
  bind_norm(config, layer.norm_tpl, "norm_tpl");
  auto& attention = config.part<DotProductAttention::HParams>(layer.attention_tpl, "attention_tpl");
  attention.causal = false;
  attention.use_bias = true;
  attention.dims_per_head = model.lm.model_dims.get() / model.lm.num_heads.get();
  config.rate("attention_probs_dropout_prob", attention.dropout_rate, 0.1);
  config.rate("hidden_dropout_prob", layer.residual_dropout_rate, 0.1);
  auto& ffn = bind_feed_forward(config, model, layer, "hidden_act", "gelu");
  ffn.use_gated_activation = false;
  ffn.use_bias = true;
}

}  // namespace

BertParts bind_bert(ConfigMembers& config, LayeredLm& model) {
  TransformerLm::HParams& lm = model.lm;
  bind_sizes(config, model);
  if (const int64_t embed = lm.model_dims.get(), heads = lm.num_heads.get(); embed % heads != 0)
    fail("{}: num_attention_heads={} does not divide hidden_size={}", config.where(), heads, embed);
  config.only("tie_word_embeddings", true, "expected one table for tokens and their scores", true);
  config.part<SharedEmbeddingSoftmax::HParams>(lm.softmax_tpl, "softmax_tpl").use_bias = true;
  auto& positions =
      config.part<TrainablePositionalEmbedding::HParams>(lm.position_emb_tpl, "position_emb_tpl");
  config.size("max_position_embeddings", positions.max_seq_length, 512, ConfigMembers::kMostTokens);
  auto& types = config.part<TypeEmbedding::HParams>(lm.type_emb_tpl, "type_emb_tpl");
  config.size("type_vocab_size", types.num_types, 2);
  bind_norm(config, lm.embedding_ln_tpl, "embedding_ln_tpl");
  config.rate("hidden_dropout_prob", lm.embedding_dropout_rate, 0.1);
  for (TransformerBlock::HParams& layer : model.layers) bind_layer(config, model, layer);
  lm.final_ln_tpl = Template<UnaryLayer>();  // The last block ends with a norm.
  auto& head = config.part<HeadTransform::HParams>(lm.head_tpl, "head_tpl");
  head.use_bias = true;
  bind_norm(config, head.norm_tpl, "head_tpl.norm_tpl");
  config.only("is_decoder", false, "expected an encoder, in which tokens attend to all", false);
  config.only("add_cross_attention", false, "expected an encoder only", false);
  config.only("position_embedding_type", "absolute", "expected learned positions");
  for (const char* name : {"classifier_dropout", "gradient_checkpointing"}) config.ignore(name);
  return {positions, head};
}

std::vector<WeightRow> bert_rows(const std::string& prefix) {
  const std::string embeddings = prefix + "embeddings.", layer = prefix + "encoder.layer.{}.";
  return {
      {embeddings + "word_embeddings.weight", "vocab, embed", "embedding.w|softmax.w"},
      {embeddings + "position_embeddings.weight", "positions, embed", "position_emb.w"},
      {embeddings + "token_type_embeddings.weight", "types, embed", "type_emb.w"},
      {embeddings + "LayerNorm.weight", "embed", "embedding_ln.scale"},
      {embeddings + "LayerNorm.bias", "embed", "embedding_ln.bias"},
      {layer + "attention.self.query.weight", "heads head_dim, embed", "attention.query"},
      {layer + "attention.self.query.bias", "heads head_dim", "attention.query_bias"},
      {layer + "attention.self.key.weight", "kv_heads head_dim, embed", "attention.key"},
      {layer + "attention.self.key.bias", "kv_heads head_dim", "attention.key_bias"},
      {layer + "attention.self.value.weight", "kv_heads head_dim, embed", "attention.value"},
      {layer + "attention.self.value.bias", "kv_heads head_dim", "attention.value_bias"},
      {layer + "attention.output.dense.weight", "embed, heads head_dim", "attention.output"},
      {layer + "attention.output.dense.bias", "embed", "attention.output_bias"},
      {layer + "attention.output.LayerNorm.weight", "embed", "attention_post_norm.scale"},
      {layer + "attention.output.LayerNorm.bias", "embed", "attention_post_norm.bias"},
      {layer + "intermediate.dense.weight", "mlp, embed", "ffn.up"},
      {layer + "intermediate.dense.bias", "mlp", "ffn.up_bias"},
      {layer + "output.dense.weight", "embed, mlp", "ffn.down"},
      {layer + "output.dense.bias", "embed", "ffn.down_bias"},
      {layer + "output.LayerNorm.weight", "embed", "ffn_post_norm.scale"},
      {layer + "output.LayerNorm.bias", "embed", "ffn_post_norm.bias"},
  };
}

}  // namespace tessera
