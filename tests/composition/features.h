// SPDX-License-Identifier: Apache-2.0
// The features of models, learners and batches that compositions combine. A new feature is a row in
// features.cc.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "layers/attention/dot_product_attention.h"
#include "layers/embeddings/embedding_softmax.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/models/language_model.h"
#include "tasks/task/single_task.h"
#include "tests/support/chance.h"

namespace tessera {

// Sizes that any mesh of the campaign divides: multiples of 3 where an axis has 3 or 6 devices.
struct CompositionSizes {
  int64_t vocab, embed, heads, head_dim, hidden, batch, seq, experts;
};

// How many microbatches a step has, such as 1, 2 and 4; in a pipeline of S stages S, 2·S, and a
// number that is not a multiple of S.
enum class Microbatches { kFewest, kFew, kMany, kUneven };

// What features set. model_of() builds the model from it.
struct ModelParts {
  CompositionSizes sizes;
  DotProductAttention::HParams attention;
  DotProductAttention::HParams cross_attention{.causal = false, .cross = true};
  Template<SequenceLayer> other_attention;  // Set: in its place.
  FeedForward::HParams dense;
  MoeFeedForward::HParams experts;
  TopKRouter::HParams router;
  ExpertChoiceRouter::HParams choice;
  bool has_experts = false, experts_choose = false;
  TransformerBlock::HParams block;
  TransformerLm::HParams lm;
  SoftmaxOptions loss;
  bool is_tied = true, is_repeated = false, is_packed = false, has_token_weights = false;
  bool has_scaled_table = false;  // And a bias of the logits.
  double table_multiplier = 1.0;
  bool has_encoder = false, has_teacher = false;
  bool has_padding = false;  // Rows differ in their number of tokens.
  int64_t frozen = 0;        // Number of weights.
  Microbatches microbatches = Microbatches::kFewest;
  SingleTask::HParams task;
};

struct Feature {
  std::string_view name;
  std::string_view group;  // A composition has at most one feature of a group; "": no group.
  std::string_view needs;  // Group of which it needs a feature; "": none.
  void (*apply)(ModelParts& parts, Chance& chance);
};
const std::vector<Feature>& features();
const Feature& feature(std::string_view name);  // Error with the nearest name.

}  // namespace tessera
