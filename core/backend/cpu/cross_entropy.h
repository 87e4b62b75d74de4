// SPDX-License-Identifier: Apache-2.0
// The arguments of the vector loops of cross-entropy, for all their targets.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

// Rows of `vocab` logits of `dtype` (f32 or bf16); z are the logits after capping.
struct CrossEntropyRows {
  DType dtype = DType::kF32;
  int64_t vocab = 0;
  float smoothing = 0.0f, z_loss = 0.0f, soft_cap = 0.0f;
  const void* logits = nullptr;
  const int32_t* labels = nullptr;  // A label outside the vocabulary has a logit of 0.

  // Results, one per row.
  float* loss = nullptr;
  float* log_likelihood = nullptr;
  float* correct = nullptr;
  float* lse = nullptr;
};

struct CrossEntropyGradRows {
  DType dtype = DType::kF32;
  int64_t vocab = 0;
  float smoothing = 0.0f, z_loss = 0.0f, soft_cap = 0.0f;
  const void* logits = nullptr;
  const int32_t* labels = nullptr;
  const float* lse = nullptr;
  const float* cotangent = nullptr;
  void* dlogits = nullptr;  // May be the logits.
};

// A shard of the vocabulary, which begins at entry `origin` of the whole.
struct CrossEntropyShardRows {
  DType dtype = DType::kF32;
  int64_t vocab = 0, origin = 0;
  float soft_cap = 0.0f;
  const void* logits = nullptr;
  const int32_t* labels = nullptr;
  const float* maximum = nullptr;

  // Results, one array of all rows each: the sum of exp(z - maximum), the uncapped logit of the
  // label (0 if it is in another shard) and, unless null, the sum of z.
  float* sum = nullptr;
  float* picked = nullptr;
  float* total = nullptr;
};

struct CrossEntropyShardGradRows {
  DType dtype = DType::kF32;
  int64_t vocab = 0, origin = 0;
  float soft_cap = 0.0f;
  const void* logits = nullptr;
  const int32_t* labels = nullptr;
  const float* maximum = nullptr;
  // The cotangents of those; `total` may be null.
  const float* sum = nullptr;
  const float* picked = nullptr;
  const float* total = nullptr;
  void* dlogits = nullptr;  // May be the logits.
};

}  // namespace tessera
