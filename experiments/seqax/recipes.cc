// SPDX-License-Identifier: Apache-2.0
// ./runexp --exp=seqax.A100x8Lm84M --smoke
// The base of seqax's configurations (its folder configs/): SeqaxModel, AdamW with a cosine
// schedule, and C4 as a flat-tokens file, as text, or generated tasks instead.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "experiments/seqax/model.h"
#include "experiments/seqax/synthetic_tasks.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/streaming/streaming_text_input.h"
#include "plugins/registry.h"
#include "tasks/recipes/c4_recipe.h"
#include "tasks/recipes/recipe_data.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/learner/schedules.h"
#include "tasks/task/single_task.h"

namespace tessera {
namespace {

constexpr int64_t kShuffledDocuments = 256;

enum class SeqaxData {
  kFlatTokens,  // The file at flat_tokens_path.
  kText,        // C4's files in c4_folder, tokenised during training.
  kSynthetic    // seqax's synthetic tasks; needs no file.
};

struct SeqaxRecipe : Experiment {
  using Base = Experiment;
  int64_t num_layers = 8;
  int64_t model_dims = 512;
  int64_t num_kv_heads = 8;
  int64_t queries_per_kv_head = 1;
  int64_t dims_per_head = 128;
  int64_t hidden_dims = 4096;
  int64_t vocab_size = 32768;
  double rope_max_timescale = 10000.0;
  int64_t seq_len = 1024;
  int64_t global_batch_size = 64;
  DType compute_dtype = DType::kBF16;

  int64_t num_train_steps = 26000;
  int64_t steps_for_learning_rate = 26000;  // The cosine ends here, at a tenth of learning_rate.
  int64_t warmup_steps = 2600;
  double learning_rate = 3e-4;
  int64_t save_interval_steps = 2600;

  SeqaxData data = SeqaxData::kFlatTokens;
  std::string flat_tokens_path = "data/c4_en.h5";    // With splits `train` and `validation`.
  std::string c4_folder = "data";                    // C4's files are in its subfolder `en`.
  std::string tokenizer = "data/c4_en.32000.model";  // For the text; at most vocab_size ids.
  int64_t num_sequences = 512;                       // Size of each split of the synthetic tasks.
  FIELDS(About(num_layers, kSize), About(model_dims, kSize), About(num_kv_heads, kSize),
         About(queries_per_kv_head, kSize), About(dims_per_head, kSize), About(hidden_dims, kSize),
         About(vocab_size, kSize), About(rope_max_timescale, kPositive), About(seq_len, kSize),
         About(global_batch_size, kSize), compute_dtype, About(num_train_steps, kNotNegative),
         About(steps_for_learning_rate, "where the cosine ends, at a tenth of learning_rate",
               kNotNegative),
         About(warmup_steps, kNotNegative), About(learning_rate, kNotNegative),
         About(save_interval_steps, kNotNegative), data, flat_tokens_path, c4_folder, tokenizer,
         About(num_sequences, "of the synthetic tasks, in each split", kSize))

  ExperimentConfig build() const override {
    const SeqaxModel::HParams model{.num_layers = num_layers,
                                    .model_dims = model_dims,
                                    .num_heads = queries_per_kv_head * num_kv_heads,
                                    .num_kv_heads = num_kv_heads,
                                    .dims_per_head = dims_per_head,
                                    .hidden_dims = hidden_dims,
                                    .vocab_size = vocab_size,
                                    .rope_max_timescale = rope_max_timescale};
    const LinearRampupCosineDecay::HParams schedule{
        .warmup_steps = warmup_steps, .decay_end = steps_for_learning_rate, .min_ratio = 0.1};
    return {.mesh = mesh(),
            // Rules for the batch only: the layouts are in the model.
            .rules = {.weights = "", .activations = "batch -> data"},
            .task =
                SingleTask::HParams{
                    .dtypes = DTypePolicy{.compute = compute_dtype},
                    .model = model,
                    .learner = {.optimizer_tpl = AdamW::HParams{.learning_rate = learning_rate,
                                                                .schedule_tpl = schedule,
                                                                .beta1 = 0.9,
                                                                .beta2 = 0.95,
                                                                .weight_decay = 0.1},
                                .clip_gradient_norm_to_value = 1.0},
                    .train = {.num_train_steps = num_train_steps,
                              .remat_policy = "q,k,v,attn_residual,ln2,gate_proj,up_proj",
                              .save_interval_steps = save_interval_steps,
                              .eval_interval_steps = num_train_steps}},
            .input = input("train"),
            .eval_inputs = {{"validation", input("validation")}}};
  }

  // Shrinks to the vocabulary of seqax's synthetic tasks.
  void shrink() override {
    Experiment::shrink();
    num_layers = 2;
    num_kv_heads = 4;
    dims_per_head = 8;
    model_dims = num_kv_heads * dims_per_head;
    hidden_dims = 2 * model_dims;
    vocab_size = 1280;
    seq_len = 32;
    global_batch_size = 8;
    set_steps(2, kSmokeSteps);
    data = SeqaxData::kSynthetic;
    num_sequences = 16;
  }

  // Returns the commands of the c4 recipes (docs/recipes.md), which read the same files.
  std::optional<MissingData> missing_data(const ExperimentConfig& config) const {
    const std::vector<std::string> fetch = commands_to_fetch_c4(c4_folder);
    const RecipeFile train{c4_files("train"), "c4_folder", fetch};
    const RecipeFile validation{c4_files("validation"), "c4_folder", fetch};
    const RecipeFile vocabulary =
        trained_tokenizer(tokenizer, 32000, c4_folder + "/en/c4-train.00000-of-01024.json.gz");
    const RecipeFile tokens =
        built_tokens(flat_tokens_path, tokenizer, {"--validation=" + validation.path}, train.path);
    const std::string advice =
        "They fetch the first 3 GB of C4's English text; the whole is 'en/*.json.gz', 305 GB. See "
        "docs/recipes.md. Without data, --mode=plan shows what a step needs, and --set "
        "data=synthetic trains on seqax's synthetic tasks.";
    if (reads<FlatTokensInput::HParams>(config.input, tokens.path))
      return missing_files({train, validation, vocabulary}, {tokens}, advice);
    if (reads<StreamingTextInput::HParams>(config.input, train.path))
      return missing_files({}, {train, validation, vocabulary}, advice);
    return std::nullopt;
  }

 protected:
  // Sets steps. The learning rate decays until the last step, except in the local test.
  void set_steps(int64_t warmup, int64_t steps) {
    warmup_steps = warmup;
    num_train_steps = steps;
    steps_for_learning_rate = steps;
  }

 private:
  // A pattern.
  std::string c4_files(std::string_view split) const {
    return fmt::format("{}/en/c4-{}.*.json.gz", c4_folder, split);
  }

  Template<BaseInput> input(const std::string& split) const {
    const bool train = split == "train";
    if (data == SeqaxData::kSynthetic)
      return SeqaxTasks::HParams{.split = split,
                                 .global_batch_size = global_batch_size,
                                 .seq_len = seq_len,
                                 .num_sequences = num_sequences,
                                 .shuffle = train,
                                 .repeat = train};
    if (data == SeqaxData::kText)
      return StreamingTextInput::HParams{
          .path = c4_files(split),
          .tokenizer = tokenizer,
          .split = StreamSplit::kAll,  // C4 has separate validation files.
          .name = split,
          .global_batch_size = global_batch_size,
          .seq_len = seq_len,
          .labels = Labels::kShiftRight,
          .shuffle = train,
          .shuffle_documents = train ? kShuffledDocuments : 1,
          .repeat = train};
    return FlatTokensInput::HParams{.path = flat_tokens_path,
                                    .split = split,
                                    .global_batch_size = global_batch_size,
                                    .seq_len = seq_len,
                                    .labels = Labels::kShiftRight,
                                    .shuffle = train ? Shuffle::kFull : Shuffle::kNone,
                                    .repeat = train};
  }
};

REGISTER_EXPERIMENT(seqax, A100x8Lm84M, SeqaxRecipe,
                    "seqax's a100x8_84m: 101M weights with both embeddings, on 8 devices") {
  ici_mesh_shape = {1, 8, 1};  // seqax's d and t are data and mdl.
  learning_rate = 3e-3;
}

REGISTER_EXPERIMENT(seqax, FlatTokens84M, SeqaxRecipe,
                    "seqax's flat_tokens_84m: 101M weights on one device, from a token file") {
  ici_mesh_shape = {1, 1, 1};
  save_interval_steps = 100;
}

REGISTER_EXPERIMENT(
    seqax, HuggingFace84M, FlatTokens84M,
    "seqax's huggingface_84m: 101M weights on one device, from text tokenised in training") {
  data = SeqaxData::kText;
}

REGISTER_EXPERIMENT(seqax, A100x8Lm270M, SeqaxRecipe,
                    "seqax's a100x8_270m: 336M weights with both embeddings, on 8 devices") {
  ici_mesh_shape = {1, 8, 1};
  model_dims = 1024;
  num_kv_heads = 16;
  hidden_dims = 8192;
  set_steps(9200, 92000);
  save_interval_steps = 9200;
}

REGISTER_EXPERIMENT(seqax, A100x8Lm540M, A100x8Lm270M,
                    "seqax's a100x8_540m: 671M weights with both embeddings, on 8 devices") {
  model_dims = 2048;
  set_steps(18500, 185000);
  save_interval_steps = 4000;
}

REGISTER_EXPERIMENT(seqax, A100x8Lm1B, A100x8Lm540M,
                    "seqax's a100x8_1b: 1.07B weights with both embeddings, on 8 devices") {
  hidden_dims = 16384;
  learning_rate = 1e-5;
  set_steps(37000, 370000);
  save_interval_steps = 10000;
}

REGISTER_EXPERIMENT(seqax, A100x8Lm2B, A100x8Lm1B,
                    "seqax's a100x8_2b: 2.15B weights with both embeddings, on 8 devices") {
  model_dims = 4096;
  set_steps(74000, 740000);
}

// Uses four times the batch of one host, for a quarter of the steps.
REGISTER_EXPERIMENT(seqax, A100x8x4Lm540M, A100x8Lm540M,
                    "seqax's a100x8x4_540m: 1.21B weights in 16 layers, on 4 hosts of 8 devices") {
  dcn_mesh_shape = {1, 4, 1};
  num_layers = 16;  // The configuration is named after the model with 8.
  global_batch_size = 256;
  set_steps(4625, 46250);
  save_interval_steps = 2500;
}

REGISTER_EXPERIMENT(
    seqax, A100x8x4Lm1B, A100x8Lm1B,
    "seqax's a100x8x4_1b: 1.07B weights with both embeddings, on 4 hosts of 8 devices") {
  dcn_mesh_shape = {1, 4, 1};
  global_batch_size = 256;
  set_steps(9250, 92500);
  save_interval_steps = 2500;
}

REGISTER_EXPERIMENT(
    seqax, A100x8x4Lm2B, A100x8x4Lm1B,
    "seqax's a100x8x4_2b: 2.15B weights with both embeddings, on 4 hosts of 8 devices") {
  model_dims = 4096;
  set_steps(18500, 185000);
}

REGISTER_EXPERIMENT(
    seqax, LocalSynthetic, SeqaxRecipe,
    "seqax's local_test_synthetic: 2.4M weights on its synthetic tasks; mesh 4×2, or any") {
  ici_mesh_shape = {1, 4, 2};
  num_layers = 2;
  model_dims = 256;
  num_kv_heads = 2;
  queries_per_kv_head = 2;
  dims_per_head = 32;
  hidden_dims = 1024;
  vocab_size = 1280;
  rope_max_timescale = 256.0;
  seq_len = 64;
  num_train_steps = 50;
  steps_for_learning_rate = 100;
  warmup_steps = 10;
  learning_rate = 3e-5;
  save_interval_steps = 10;
  data = SeqaxData::kSynthetic;
}

}  // namespace
}  // namespace tessera
