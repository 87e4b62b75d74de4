// SPDX-License-Identifier: Apache-2.0
// The base of Pax's c4 language models (paxml/tasks/lm/params/c4.py): the model and the learner of
// tasks/recipes, on C4. The data are a flat-tokens file, or C4's files. c4_spmd.cc has the recipes,
// c4_data.cc the commands that fetch the data.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "core/hparams/fields.h"
#include "tasks/recipes/transformer_lm_recipe.h"

namespace tessera {

enum class C4Data {
  kFlatTokens,  // The file at flat_tokens_path.
  kShards,      // C4's files, tokenised on the fly: train_shards and validation_shards.
  kSynthetic    // Generated sequences; needs no file.
};

constexpr std::array<EnumName<C4Data>, 3> enum_names(C4Data) {
  return {{{C4Data::kFlatTokens, "flat_tokens"},
           {C4Data::kShards, "shards"},
           {C4Data::kSynthetic, "synthetic"}}};
}

// Pax's C4SpmdAdam. 24 layers, 1.3 billion weights.
struct C4Spmd : TransformerLmAdamRecipe {
  using Base = TransformerLmAdamRecipe;
  C4Spmd();
  C4Data data = C4Data::kFlatTokens;
  std::string flat_tokens_path = "data/c4_en.h5";  // With splits `train` and `validation`.
  std::string train_shards = "data/en/c4-train.*.json.gz";
  std::string validation_shards = "data/en/c4-validation.*.json.gz";
  std::string tokenizer = "data/c4_en.32000.model";  // Of the shards; at most vocab_size ids.
  FIELDS(data, flat_tokens_path, train_shards, validation_shards, tokenizer)

  std::optional<MissingData> missing_data(const ExperimentConfig& config) const;

 protected:
  Template<BaseInput> input(std::string_view split) const override;
};

}  // namespace tessera
