// SPDX-License-Identifier: Apache-2.0
#include "tasks/recipes/c4_recipe.h"

#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "tasks/recipes/recipe_input.h"

namespace tessera {

C4Recipe::C4Recipe() {
  num_layers = 24;
  model_dims = 2048;
  num_heads = 32;
  vocab_size = 32128;
  activation_tpl = GELU::HParams{.approximate = true};
  flat_tokens_path = "data/c4_en.h5";
  remat_policy = "save_dot_for_mlperf_200b";
  save_interval_steps = 1000;
  ici_mesh_shape = {1, 4, 2};
}

void C4Recipe::shrink() {
  Base::shrink();
  data = C4Data::kSynthetic;
  tokenizer = "bytes";
}

C4Gpt3Recipe::C4Gpt3Recipe() {
  seq_len = 2048;
  num_layers = 96;
  model_dims = 12288;
  num_heads = 96;
  vocab_size = 50257;
  tokenizer_size = 50257;
  tokenizer = "data/c4_en.50257.model";
  flat_tokens_path = "data/c4_en_50257.h5";
  use_repeated_layer = true;
  use_gpt3_layers();
  use_gpt3_optimizer();
  init_std = 0.006;
  softmax_init_std = 0.006;
  learning_rate = 6e-5;
  warmup_steps = 265;
  decay_end = 108'600;
  target_log_pplx = 2.69;
  remat_policy = "save_nothing";
  eval_interval_steps = 100;
  summary_interval_steps = 10;
  save_interval_steps = 100;
  save_max_to_keep = 10;
}

void C4Gpt3Recipe::use_mlperf_rule() {
  learning_rate.reset();
  warmup_steps.reset();
  decay_end.reset();
}

Template<BaseInput> C4Recipe::input(std::string_view split) const {
  constexpr int64_t kShuffledDocuments = 256;
  const bool train = split == "train";
  if (data == C4Data::kSynthetic) return generated_split(split, kTrainSeed, batch_size(), seq_len);
  if (data == C4Data::kShards)
    return StreamingTextInput::HParams{
        .path = train ? train_shards : validation_shards,
        .tokenizer = tokenizer,
        .split = StreamSplit::kAll,  // C4 has separate validation files.
        .name = std::string(split),
        .global_batch_size = batch_size(),
        .seq_len = seq_len,
        .labels = pax_rows ? Labels::kOneSegment : Labels::kShiftRight,
        .end_of_document = pax_rows ? EndOfDocument::kNone : EndOfDocument::kAuto,
        .shuffle = train,
        .shuffle_documents = train ? kShuffledDocuments : 1,
        .repeat = train,
        .seed = kTrainSeed};
  Template<BaseInput> tokens = Base::input(split);
  if (pax_rows) tokens.as<FlatTokensInput::HParams>().labels = Labels::kOneSegment;
  return tokens;
}

}  // namespace tessera
