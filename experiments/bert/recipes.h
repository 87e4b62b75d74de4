// SPDX-License-Identifier: Apache-2.0
// The base of Pax's masked language models (paxml.tasks.lm.params.bert, and
// TransformerBertSpmdAdafactor in paxml.tasks.lm.model_params): the layers of Pax's language
// models, but every token attends to the whole of its document, and the loss is that of predicting
// masked tokens (inputs/masked_input.h). recipes.cc has the recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/hparams/fields.h"
#include "tasks/recipes/transformer_lm_recipe.h"

namespace tessera {

enum class BertData {
  kFlatTokens,  // The file at flat_tokens_path.
  kSynthetic    // Generated sequences; needs no file.
};

struct BertRecipe : TransformerLmRecipe {
  using Base = TransformerLmRecipe;
  BertRecipe();
  int64_t mask_id = 0;  // Pax: MASK_TOKEN_ID. In our tokenizers, the unknown token.
  double label_smoothing = 0.0;

  BertData data = BertData::kFlatTokens;
  std::string flat_tokens_path = "data/wikipedia.h5";  // With splits `train` and `validation`.
  std::string text_path = "data/wikipedia.jsonl";      // Source text of the token file.
  std::string tokenizer = "data/wikipedia.32000.model";
  FIELDS(About(mask_id, kNotNegative), About(label_smoothing, kRate), data, flat_tokens_path,
         text_path, tokenizer)

  void shrink() override;
  std::optional<MissingData> missing_data(const ExperimentConfig& config) const;

 protected:
  Template<BaseModel> model() const override;
  Template<SequenceLayer> attention() const override;
  Template<BaseInput> input(std::string_view split) const override;

 private:
  Template<BaseInput> tokens(std::string_view split) const;
};

}  // namespace tessera
