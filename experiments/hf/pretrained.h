// SPDX-License-Identifier: Apache-2.0
// A GPT-2 or Llama with the sizes of a Hugging Face directory. --mode=import --input=<path> imports
// its weights; otherwise they are initialised. Importing, exporting and continuing prompts need no
// data; training and evaluation do.
#pragma once

#include <cstdint>
#include <string>

#include "tasks/config/experiment.h"

namespace tessera {

struct Pretrained : Experiment {
  using Base = Experiment;
  static constexpr std::string_view kSummary =
      "a GPT-2 or Llama, as in the config.json of a Hugging Face directory (--set path=DIR)";
  std::string path;              // The directory with config.json.
  std::string flat_tokens_path;  // Training data: a token file,
  std::string text_path;         // or text (file, directory or pattern), tokenised on the fly.
  std::string tokenizer;         // Of the text; empty: the one in `path`.
  int64_t seq_len = 256;
  int64_t global_batch_size = 8;
  int64_t num_train_steps = 1000;
  int64_t warmup_steps = 100;
  double learning_rate = 1e-4;
  double min_learning_rate_ratio = 0.1;
  double weight_decay = 0.1;  // Of matrices only.
  double dropout_rate = 0.0;  // Of the residual and the embeddings.
  bool repeated = true;       // Loop over one block; false: every layer has its own nodes.
  DType compute_dtype = DType::kF32;
  FIELDS(path, flat_tokens_path, text_path, tokenizer, seq_len, global_batch_size, num_train_steps,
         warmup_steps, learning_rate, min_learning_rate_ratio, weight_decay, dropout_rate, repeated,
         compute_dtype)

  ExperimentConfig build() const override;
};

}  // namespace tessera
