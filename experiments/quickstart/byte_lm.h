// SPDX-License-Identifier: Apache-2.0
// The base of this family's experiments (byte_lm.cc): a decoder-only transformer (RMSNorm, rotary
// positions, SwiGLU, tied embeddings) over bytes, trained on text that is copied into the run's
// directory.
#pragma once

#include <cstdint>

#include "layers/models/transformer.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

struct ByteLm : Experiment {
  using Base = Experiment;
  int64_t vocab_size = 264;  // Bytes and the reserved id 0 make 257, rounded up to a multiple of 8.
  int64_t num_layers = 4;
  int64_t model_dims = 128;
  int64_t num_heads = 4;
  // Gated: three matrices, as many weights as two of 1.5 times this width.
  int64_t hidden_dims = 384;
  int64_t mup_base_dims = 0;  // muP: model_dims for which the two sizes above are.
  int64_t seq_len = 256;
  int64_t global_batch_size = 32;
  int64_t num_train_steps = 1000;
  int64_t warmup_steps = 100;
  double learning_rate = 1e-3;
  double min_learning_rate_ratio = 0.1;
  double beta2 = 0.99;
  double weight_decay = 0.1;  // For matrices only.
  double dropout_rate = 0.0;
  DType compute_dtype = DType::kF32;
  int64_t sample_length = 0;  // Tokens of a sample at the end of the run.
  FIELDS(About(vocab_size, "ids of the model; 256 bytes and one reserved id need 257", kSize),
         About(num_layers, kLayerCount), About(model_dims, "width of the residual", kSize),
         About(num_heads, kSize),
         About(hidden_dims, "width of each of three matrices of the feed-forward layer", kSize),
         About(mup_base_dims, "muP: model_dims for which other settings are; 0: standard",
               kNotNegative),
         About(seq_len, "tokens of a sequence", kSize),
         About(global_batch_size, "sequences of a step, on all devices", kSize),
         About(num_train_steps, kNotNegative),
         About(warmup_steps, "until the learning rate is at its peak", kNotNegative),
         About(learning_rate, "at its peak", kNotNegative),
         About(min_learning_rate_ratio, "of the peak, at the end", kShare),
         About(beta2, "decay of the second moment", kRate),
         About(weight_decay, "of matrices only", kNotNegative), About(dropout_rate, kRate),
         compute_dtype,
         About(sample_length, "tokens of a sample at the end of the run; 0: none",
               {.min = 0, .max = 1 << 24}))

  ExperimentConfig build() const override;
  void shrink() override;  // Keeps the data: this repository, or the user's files.
  void validate() const override;
  Sweep search() const override;

 protected:
  int64_t base_dims() const { return mup_base_dims > 0 ? mup_base_dims : model_dims; }
  Template<BaseModel> model() const;
  Learner::HParams learner() const;
};

}  // namespace tessera
