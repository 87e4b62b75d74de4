// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=bert.AdamL4H128 --smoke
// The base of Pax's masked language models (paxml.tasks.lm.params.bert, and
// TransformerBertSpmdAdafactor in paxml.tasks.lm.model_params): the layers of Pax's language
// models, but every token attends to the whole of its document, and the loss is that of predicting
// masked tokens (inputs/masked_input.h).
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/base/printable.h"
#include "core/io/json.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/masked_input.h"
#include "plugins/registry.h"
#include "tasks/recipes/recipe_data.h"
#include "tasks/recipes/transformer_lm_recipe.h"

namespace tessera {
namespace {

struct BertRecipe : TransformerLmRecipe {
  using Base = TransformerLmRecipe;

  // Defaults of Pax's BertSpmd, and the sequences of MLPerf's data.
  BertRecipe() {
    seq_len = 512;
    learning_rate = 2.5e-4;
    remat_policy = "save_dot_with_no_batch_dims";
    flat_tokens_path = "data/wikipedia.h5";
  }

  int64_t mask_id = 0;  // Pax: MASK_TOKEN_ID. In our tokenizers, the unknown token.
  double label_smoothing = 0.0;

  RecipeData data = RecipeData::kFlatTokens;
  std::string text_path = "data/wikipedia.jsonl";  // Source text of the token file.
  std::string tokenizer = "data/wikipedia.32000.model";
  FIELDS(About(mask_id, kNotNegative), About(label_smoothing, kRate), data, text_path, tokenizer)

  void shrink() override {
    Base::shrink();
    data = RecipeData::kSynthetic;
  }

  std::optional<MissingData> missing_data(const ExperimentConfig& config) const {
    const RecipeFile text{
        text_path,
        "text_path",
        {"pip install -U datasets",
         shell_command(
             {"python3", "-c",
              fmt::format(R"(import datasets; datasets.load_dataset("wikimedia/wikipedia", )"
                          R"("20231101.en", split="train").to_json({}))",
                          json_quoted(text_path))})}};
    const RecipeFile vocabulary = trained_tokenizer(tokenizer, vocab_size, text_path);
    const RecipeFile token_file =
        built_tokens(flat_tokens_path, tokenizer, {"--validation_fraction=0.005"}, text_path);
    if (!config.input.holds<MaskedInput::HParams>() ||
        !reads<FlatTokensInput::HParams>(config.input.as<MaskedInput::HParams>().input_tpl,
                                         flat_tokens_path))
      return std::nullopt;
    return missing_files(
        {text, vocabulary}, {token_file},
        "They fetch the English Wikipedia, 20 GB of text. Without data, --mode=plan "
        "shows what a step needs, and --set data=synthetic trains on synthetic "
        "sequences.");
  }

 protected:
  Template<BaseModel> model() const override {
    Template<BaseModel> model_tpl = Base::model();
    auto& lm = model_tpl.as<LanguageModel::HParams>().lm_tpl.as<TransformerLm::HParams>();
    lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().loss.label_smoothing = label_smoothing;
    return model_tpl;
  }

  Template<SequenceLayer> attention() const override {
    Template<SequenceLayer> attention_tpl = Base::attention();
    attention_tpl.as<DotProductAttention::HParams>().causal = false;
    return attention_tpl;
  }

  Template<BaseInput> input(std::string_view split) const override {
    return MaskedInput::HParams{.input_tpl = tokens(split),
                                .mask_id = mask_id,
                                .global_batch_size = batch_size(),
                                .seq_len = seq_len,
                                .seed = split == "train" ? kTrainSeed : kTrainSeed + 1};
  }

 private:
  Template<BaseInput> tokens(std::string_view split) const {
    const bool train = split == "train";
    if (data == RecipeData::kSynthetic) {
      SyntheticInput::HParams generated = generated_split(split, kTrainSeed);
      generated.score_all = true;
      return generated;
    }
    return FlatTokensInput::HParams{.path = flat_tokens_path,
                                    .split = std::string(split),
                                    .packed = train,  // As in Pax, evaluation has one text per row.
                                    .labels = Labels::kShiftRight,
                                    .shuffle = train ? Shuffle::kFull : Shuffle::kNone,
                                    .repeat = train,
                                    .seed = kTrainSeed};
  }
};

// Pax runs it with pmap: each device has all weights.
REGISTER_EXPERIMENT(bert, AdamL4H128, BertRecipe,
                    "Pax's BertAdamL4H128: 4.9M weights, trained with Adam; 8 replicas") {
  num_layers = 4;
  model_dims = 128;
  num_heads = 8;
  hidden_dims = 512;
  combine_qkv = false;
  percore_batch_size = 8;
  ici_mesh_shape = {8, 1, 1};
  optimizer = LmOptimizer::kAdam;
  learning_rate = 1e-3;
  decay_end = 300'000;
}

REGISTER_EXPERIMENT(bert, SpmdL4H128, BertRecipe,
                    "Pax's BertSpmdL4H128: 4.9M weights, trained with Adafactor; mesh 4×2") {
  num_layers = 4;
  model_dims = 128;
  dims_per_head = 16;
  hidden_dims = 512;
  percore_batch_size = 4;
  ici_mesh_shape = {1, 4, 2};
}

REGISTER_EXPERIMENT(bert, SpmdL33H12kBiggerBatch, BertRecipe,
                    "Pax's BertSpmdL33H12kBiggerBatch: 100B weights, batch 2048; mesh 64×8") {
  num_layers = 33;
  model_dims = 12288;
  dims_per_head = 96;
  hidden_dims = 8 * 12288;
  use_repeated_layer = true;  // Pax unrolls them; the numbers are the same.
  weight_decay = 1e-2;
  label_smoothing = 0.1;
  percore_batch_size = 4;
  ici_mesh_shape = {1, 64, 8};
  save_interval_steps = 1000;
}

REGISTER_EXPERIMENT(
    bert, SpmdL33H12kBiggerBatch8x8x16, SpmdL33H12kBiggerBatch,
    "Pax's BertSpmdL33H12kBiggerBatch8x8x16: 100B weights, batch 4096; mesh 64×16") {
  ici_mesh_shape = {1, 64, 16};
  save_interval_steps = 500;
}

REGISTER_EXPERIMENT(
    bert, SpmdL66H12kBiggerBatch8x8x16, SpmdL33H12kBiggerBatch,
    "Pax's BertSpmdL66H12kBiggerBatch8x8x16: 200B weights, batch 4096; mesh 64×16") {
  num_layers = 66;
  ici_mesh_shape = {1, 64, 16};
  remat_policy = "save_dot_for_mlperf_200b";
  save_interval_steps = 200;
  save_max_to_keep = 20;
}

REGISTER_EXPERIMENT(bert, SpmdL66H12kBiggerBatch8x8x8, SpmdL66H12kBiggerBatch8x8x16,
                    "Pax's BertSpmdL66H12kBiggerBatch8x8x8: 200B weights, batch 512; mesh 64×8") {
  percore_batch_size = 1;
  ici_mesh_shape = {1, 64, 8};
}

}  // namespace
}  // namespace tessera
