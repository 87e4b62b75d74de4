// SPDX-License-Identifier: Apache-2.0
// The base of this family's experiments (byte_lm.cc): a decoder-only transformer (RMSNorm, rotary
// positions, SwiGLU, tied embeddings) over bytes, trained on text that is copied into the run's
// directory.
#pragma once

#include <cstdint>
#include <string>

#include "tasks/config/experiment.h"

namespace tessera {

struct ByteLm : Experiment {
  using Base = Experiment;
  int64_t vocab_size = 264;  // Bytes and the reserved id 0 make 257, rounded up to a multiple of 8.
  int64_t num_layers = 4;
  int64_t model_dims = 128;
  int64_t num_heads = 4;
  // Gated: three matrices, as many weights as two of 1.5 times this width.
  int64_t hidden_dims = 384;
  int64_t seq_len = 256;
  int64_t global_batch_size = 32;
  int64_t num_train_steps = 1000;
  int64_t warmup_steps = 100;
  double learning_rate = 1e-3;
  double min_learning_rate_ratio = 0.1;
  double beta2 = 0.99;
  double weight_decay = 0.1;  // Of matrices only.
  double dropout_rate = 0.0;
  DType compute_dtype = DType::kF32;
  int64_t sample_length = 0;  // Tokens of a sample at the end of the run.
  FIELDS(vocab_size, num_layers, model_dims, num_heads, hidden_dims, seq_len, global_batch_size,
         num_train_steps, warmup_steps, learning_rate, min_learning_rate_ratio, beta2, weight_decay,
         dropout_rate, compute_dtype, sample_length)

  ExperimentConfig build() const override;
  void shrink() override;  // The data stay: this repository, or the user's files.
  void validate() const override;
  Sweep search() const override;

 protected:
  Template<BaseModel> model() const;
  Learner::HParams learner() const;
};

}  // namespace tessera
