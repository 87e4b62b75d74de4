// SPDX-License-Identifier: Apache-2.0
// The base of seqax's configurations (its folder configs/): SeqaxModel, AdamW with a cosine
// schedule, and C4 as a flat-tokens file, as text, or generated tasks instead. recipes.cc has the
// recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/hparams/fields.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

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

  ExperimentConfig build() const override;
  void shrink() override;
  std::optional<MissingData> missing_data(const ExperimentConfig& config) const;

 protected:
  // Sets steps. The learning rate decays until the last step, except in the local test.
  void set_steps(int64_t warmup, int64_t steps);

 private:
  std::string c4_files(std::string_view split) const;  // A pattern.
  Template<BaseInput> input(const std::string& split) const;
};

}  // namespace tessera
