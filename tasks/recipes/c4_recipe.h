// SPDX-License-Identifier: Apache-2.0
// The bases of recipes on C4 (Pax: paxml/tasks/lm/params/c4.py): the model and the learner of
// transformer_lm_recipe.h, with C4 as a flat-tokens file, or C4's files. missing_data() gives the
// commands that fetch the data. experiments/c4 and experiments/c4_multislice have the recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "tasks/recipes/transformer_lm_recipe.h"

namespace tessera {

enum class C4Data {
  kFlatTokens,  // The file at flat_tokens_path, which is required.
  kShards,      // C4's files, tokenised on the fly: train_shards and validation_shards.
  kSynthetic    // Generated sequences; needs no file.
};

// Shell commands that download a part of C4 below the folder, as en/c4-train.*.json.gz and
// en/c4-validation.*.json.gz.
std::vector<std::string> commands_to_fetch_c4(const std::string& folder);

// Pax's C4SpmdAdam, and C4SpmdPipelineAdam with use_pipeline. 24 layers, 1.3 billion weights.
struct C4Recipe : TransformerLmAdamRecipe {
  using Base = TransformerLmAdamRecipe;
  C4Recipe();
  C4Data data = C4Data::kFlatTokens;
  std::string train_shards = "data/en/c4-train.*.json.gz";
  std::string validation_shards = "data/en/c4-validation.*.json.gz";
  std::string tokenizer = "data/c4_en.32000.model";  // For the shards; at most vocab_size ids.
  int64_t tokenizer_size = 32000;  // Size in the commands that train it; at most vocab_size.
  // Rows as Pax makes them: one segment across documents without end ids, and a label is the next
  // token of the row (Labels::kOneSegment). false: segments, and each token is a label.
  bool pax_rows = false;
  FIELDS(data, train_shards, validation_shards, tokenizer, tokenizer_size,
         About(pax_rows, "rows are one segment across documents, without end ids"))

  void shrink() override;
  std::optional<MissingData> missing_data(const ExperimentConfig& config) const;

 protected:
  Template<BaseInput> input(std::string_view split) const override;
};

// Pax's C4SpmdGpt3AdamOrgHP and C4SpmdPipelineGpt3AdamOrgHP: GPT-3 175B (Brown et al., 2020) with
// its own hyper-parameters, for batches of 1536 sequences. Weights of attention and feed-forward
// layers have biases, as in GPT-3; the softmax has none.
struct C4Gpt3Recipe : C4Recipe {
  C4Gpt3Recipe();

 protected:
  // MLPerf's: rate, warm-up and decay follow from the batch (mlperf_gpt3_rule). Pax:
  // C4SpmdPipelineGpt3AdamMLPerfHP.
  void use_mlperf_rule();
};

}  // namespace tessera
