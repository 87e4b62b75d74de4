// SPDX-License-Identifier: Apache-2.0
// Members of config.json and tensors that BERT and RoBERTa have in common.
#pragma once

#include <string>
#include <vector>

#include "layers/embeddings/position_embedding.h"
#include "layers/feed_forward/head_transform.h"
#include "tasks/families/parts.h"

namespace tessera {

// All but the first position and the activation of the head.
struct BertParts {
  TrainablePositionalEmbedding::HParams& positions;
  HeadTransform::HParams& head;
};
BertParts bind_bert(ConfigMembers& config, LayeredLm& model);

// Embeddings and layers; their names begin with "bert." or "roberta.".
std::vector<WeightRow> bert_rows(const std::string& prefix);

}  // namespace tessera
