// SPDX-License-Identifier: Apache-2.0
// RoBERTa (Liu et al., 2019, arXiv 1907.11692), the masked language model: BERT with other names in
// its head, and positions that begin after the row of the padding token.
#include "core/base/error.h"
#include "tasks/families/bert_parts.h"

namespace tessera {
namespace {

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
                                 {"lm_head.dense.bias", "mlp", "head.b"},
                                 {"lm_head.layer_norm.weight", "embed", "head.norm.scale"},
                                 {"lm_head.layer_norm.bias", "embed", "head.norm.bias"},
                                 {"lm_head.bias", "vocab", "softmax.b"},
                             }}),
     .is_ignored = roberta_ignores}};

}  // namespace
}  // namespace tessera
