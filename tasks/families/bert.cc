// SPDX-License-Identifier: Apache-2.0
// BERT (Devlin et al., 2019, arXiv 1810.04805), the masked language model: tokens attend to all
// tokens, norms follow the sums, and a layer stands between the last block and the scores.
#include "tasks/families/bert_parts.h"

namespace tessera {
namespace {

void bert_members(ConfigMembers& config, LayeredLm& model) {
  const BertParts parts = bind_bert(config, model);
  config.activation("hidden_act", parts.head.activation_tpl, "gelu");
  for (const char* name : {"directionality", "pooler_fc_size", "pooler_num_attention_heads",
                           "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"})
    config.ignore(name);
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
              {"cls.predictions.transform.dense.bias", "mlp", "head.b"},
              {"cls.predictions.transform.LayerNorm.weight", "embed", "head.norm.scale"},
              {"cls.predictions.transform.LayerNorm.bias", "embed", "head.norm.bias"},
              {"cls.predictions.bias", "vocab", "softmax.b"},
          }}),
     .is_ignored = bert_ignores}};

}  // namespace
}  // namespace tessera
