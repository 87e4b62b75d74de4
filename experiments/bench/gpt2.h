// SPDX-License-Identifier: Apache-2.0
// The models for speed measurements: GPT-2's architecture (learned positions, LayerNorm, exact
// GELU, no biases as in nanoGPT's small recipes, tied embeddings) on synthetic tokens. Initial
// weights as in GPT-2: N(0, 0.02²), and N(0, 0.02²/(2·layers)) for projections into the residual.
// AdamW with betas 0.9 and 0.95, epsilon 1e-8, a constant learning rate and weight decay 0.1 on
// matrices; gradients are clipped to a global norm of 1. The same model in another framework gives
// the same first losses.
#pragma once

#include <cstdint>

#include "tasks/config/experiment.h"

namespace tessera {

struct Gpt2 : Experiment {
  using Base = Experiment;
  int64_t num_layers = 12;
  int64_t model_dims = 768;
  int64_t num_heads = 12;
  int64_t vocab_size = 50304;
  int64_t seq_len = 256;
  int64_t global_batch_size = 4;
  int64_t num_train_steps = 20;
  double learning_rate = 6e-4;
  DType compute_dtype = DType::kF32;
  FIELDS(num_layers, model_dims, num_heads, vocab_size, seq_len, global_batch_size, num_train_steps,
         learning_rate, compute_dtype)

  ExperimentConfig build() const override;
};

}  // namespace tessera
