// SPDX-License-Identifier: Apache-2.0
// Masked language models: BERT (Devlin et al., 2019, arXiv 1810.04805), in which tokens attend to
// all tokens, norms follow the sums, and a layer stands between the last block and the scores; and
// RoBERTa (Liu et al., 2019, arXiv 1907.11692) with other names in its head, and positions that
// begin after the row of the padding token.
#include "core/base/error.h"
#include "layers/embeddings/position_embedding.h"
#include "layers/feed_forward/feed_forward.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

void bind_bert_norm(ConfigMembers& config, Template<UnaryLayer>& norm_tpl, std::string_view path) {
  config.positive("layer_norm_eps", config.part<LayerNorm::HParams>(norm_tpl, path).epsilon, 1e-12);
}

void bind_bert_layer(ConfigMembers& config, LayeredLm& model, TransformerBlock::HParams& layer) {
  layer.norm_policy = NormPolicy::kPost;
  bind_bert_norm(config, layer.norm_tpl, "norm_tpl");
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

// All members but the first position and the activation of the head.
struct BertParts {
  TrainablePositionalEmbedding::HParams& positions;
  HeadTransform::HParams& head;
};

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
  bind_bert_norm(config, lm.embedding_ln_tpl, "embedding_ln_tpl");
  config.rate("hidden_dropout_prob", lm.embedding_dropout_rate, 0.1);
  for (TransformerBlock::HParams& layer : model.layers) bind_bert_layer(config, model, layer);
  lm.final_ln_tpl = Template<UnaryLayer>();  // The last block ends with a norm.
  auto& head = config.part<HeadTransform::HParams>(lm.head_tpl, "head_tpl");
  head.use_bias = true;
  bind_bert_norm(config, head.norm_tpl, "head_tpl.norm_tpl");
  config.only("is_decoder", false, "expected an encoder, in which tokens attend to all", false);
  config.only("add_cross_attention", false, "expected an encoder only", false);
  config.only("position_embedding_type", "absolute", "expected learned positions");
  config.ignore({"classifier_dropout", "gradient_checkpointing"});
  return {positions, head};
}

// Embeddings and layers; their names begin with "bert." or "roberta.".
std::vector<WeightRow> bert_rows(const std::string& prefix) {
  const std::string embeddings = prefix + "embeddings.", layer = prefix + "encoder.layer.{}.";
  return {
      {embeddings + "word_embeddings.weight", "vocab, embed", "embedding.w|softmax.w"},
      {embeddings + "position_embeddings.weight", "positions, embed", "position_emb.w"},
      {embeddings + "token_type_embeddings.weight", "types, embed", "type_emb.w"},
      {embeddings + "LayerNorm.weight", "embed", "embedding_ln.scale"},
      {layer + "attention.self.query.weight", "heads head_dim, embed", "attention.query"},
      {layer + "attention.self.key.weight", "kv_heads head_dim, embed", "attention.key"},
      {layer + "attention.self.value.weight", "kv_heads head_dim, embed", "attention.value"},
      {layer + "attention.output.dense.weight", "embed, heads head_dim", "attention.output"},
      {layer + "attention.output.LayerNorm.weight", "embed", "attention_post_norm.scale"},
      {layer + "intermediate.dense.weight", "mlp, embed", "ffn.up"},
      {layer + "output.dense.weight", "embed, mlp", "ffn.down"},
      {layer + "output.LayerNorm.weight", "embed", "ffn_post_norm.scale"},
  };
}

void bert_members(ConfigMembers& config, LayeredLm& model) {
  const BertParts parts = bind_bert(config, model);
  config.activation("hidden_act", parts.head.activation_tpl, "gelu");
  config.ignore({"directionality", "pooler_fc_size", "pooler_num_attention_heads",
                 "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"});
}

// The pooler and the head that predicts whether two texts follow each other; and, of old files,
// numbers of positions and copies of the table and the bias.
bool bert_ignores(std::string_view name, const LayeredLm&) {
  return name.starts_with("bert.pooler.") || name.starts_with("cls.seq_relationship.") ||
         name.starts_with("cls.predictions.decoder.") || name == "bert.embeddings.position_ids";
}

const FamilyRegistrar kBert{
    {.model_type = "bert",
     .architecture = "BertForMaskedLM",
     .members = bert_members,
     .weights = joined_rows(
         {bert_rows("bert."),
          {
              {"cls.predictions.transform.dense.weight", "mlp, embed", "head.w"},
              {"cls.predictions.transform.LayerNorm.weight", "embed", "head.norm.scale"},
              {"cls.predictions.bias", "vocab", "softmax.b"},
          }}),
     .is_ignored = bert_ignores}};

void roberta_members(ConfigMembers& config, LayeredLm& model) {
  const BertParts parts = bind_bert(config, model);
  parts.head.activation_tpl = GELU::HParams{.approximate = false};
  const int64_t first = parts.positions.first_row;
  if (!config.reads() && first == 0)
    return config.reason("position_emb_tpl.first_row is 0, expected pad_token_id + 1");
  int64_t padding = first - 1;
  config.number("pad_token_id", padding, 1);
  parts.positions.first_row = padding + 1;
  if (const int64_t rows = parts.positions.max_seq_length.get(); padding + 1 >= rows)
    fail("{}: no position follows pad_token_id={} in max_position_embeddings={}", config.where(),
         padding, rows);
}

// The pooler; and, of old files, numbers of positions and copies of the table and the bias.
bool roberta_ignores(std::string_view name, const LayeredLm&) {
  return name.starts_with("roberta.pooler.") || name.starts_with("lm_head.decoder.") ||
         name == "roberta.embeddings.position_ids";
}

const FamilyRegistrar kRoberta{
    {.model_type = "roberta",
     .architecture = "RobertaForMaskedLM",
     .members = roberta_members,
     .weights = joined_rows({bert_rows("roberta."),
                             {
                                 {"lm_head.dense.weight", "mlp, embed", "head.w"},
                                 {"lm_head.layer_norm.weight", "embed", "head.norm.scale"},
                                 {"lm_head.bias", "vocab", "softmax.b"},
                             }}),
     .is_ignored = roberta_ignores}};

}  // namespace
}  // namespace tessera
