// SPDX-License-Identifier: Apache-2.0
// The arguments of the vector loops of norms (RMSNorm, LayerNorm), of cross-entropy and of Adam,
// for all their targets.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

// Rows of `width` elements of `dtype` (f32 or bf16); weights are f32, or null.
struct NormRows {
  DType dtype = DType::kF32;
  int64_t width = 0;
  float epsilon = 0.0f;
  bool centered = false;  // LayerNorm: subtracts the mean.
  const void* x = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;      // May be x.
  float* rstd = nullptr;  // One per row, like the mean.
  float* mean = nullptr;
};

struct NormGradRows {
  DType dtype = DType::kF32;
  int64_t width = 0;
  bool centered = false;
  const void* x = nullptr;
  const void* cotangent = nullptr;
  const float* scale = nullptr;
  const float* rstd = nullptr;
  const float* mean = nullptr;
  void* dx = nullptr;  // May be x or the cotangent.
};

// Rows of `vocab` logits of `dtype` (f32 or bf16): of the whole vocabulary, or of a shard of it
// that begins at entry `origin`. z are the logits after capping.
struct LogitRows {
  DType dtype = DType::kF32;
  int64_t vocab = 0, origin = 0;
  float soft_cap = 0.0f;
  const void* logits = nullptr;
  const int32_t* labels = nullptr;  // A label outside the vocabulary has a logit of 0.
  void* dlogits = nullptr;          // Result of a gradient; may be the logits.
};

struct CrossEntropyRows : LogitRows {
  float smoothing = 0.0f, z_loss = 0.0f;
  // Results, one per row.
  float* loss = nullptr;
  float* log_likelihood = nullptr;
  float* correct = nullptr;
  float* lse = nullptr;
};

struct CrossEntropyGradRows : LogitRows {
  float smoothing = 0.0f, z_loss = 0.0f;
  const float* lse = nullptr;
  const float* cotangent = nullptr;
};

// Results of a shard, one array of all rows each: the sum of exp(z - maximum), the uncapped logit
// of the label (0 if it is in another shard) and, unless null, the sum of z. `Float` is float for
// these results, and const float for their cotangents.
template <typename Float>
struct CrossEntropyShardRows : LogitRows {
  const float* maximum = nullptr;
  Float* sum = nullptr;
  Float* picked = nullptr;
  Float* total = nullptr;
};

// The coefficients of a step of Adam.
struct AdamStep {
  float decay1 = 0.0f, decay2 = 0.0f;  // m = decay1·m + weight1·g, v = decay2·v + weight2·g²,
  float weight1 = 0.0f, weight2 = 0.0f;  // with weight = 1 - decay, rounded once.
  float unbias1 = 1.0f, unbias2 = 1.0f;  // Bias corrections of the moments in the update.
  float epsilon = 0.0f, epsilon_root = 0.0f, weight_decay = 0.0f;
  float learning_rate = 0.0f, gradient_scale = 1.0f;
  DType first = DType::kF32, second = DType::kF32;  // Dtypes of the moments.
};

}  // namespace tessera
