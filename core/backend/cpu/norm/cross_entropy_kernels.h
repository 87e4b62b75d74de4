// SPDX-License-Identifier: Apache-2.0
// The vector loops of cross-entropy over contiguous rows of logits, one pass over them each way.
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
  const int32_t* labels = nullptr;  // One outside the vocabulary picks a logit of 0.

  // Results, one a row.
  float* loss = nullptr;
  float* log_likelihood = nullptr;
  float* correct = nullptr;
  float* lse = nullptr;
};
void cross_entropy_rows(const CrossEntropyRows& rows, int64_t begin, int64_t end);

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
void cross_entropy_grad_rows(const CrossEntropyGradRows& rows, int64_t begin, int64_t end);

// A shard of the vocabulary, whose first entry is number `origin` of all.
struct CrossEntropyShardRows {
  DType dtype = DType::kF32;
  int64_t vocab = 0, origin = 0;
  float soft_cap = 0.0f;
  const void* logits = nullptr;
  const int32_t* labels = nullptr;
  const float* maximum = nullptr;

  // Each term of all rows together: the sum of exp(z - maximum), the label's uncapped logit (0 if
  // another shard's) and, unless null, the sum of z.
  float* sum = nullptr;
  float* picked = nullptr;
  float* total = nullptr;
};
void cross_entropy_shard_rows(const CrossEntropyShardRows& rows, int64_t begin, int64_t end);

struct CrossEntropyShardGradRows {
  DType dtype = DType::kF32;
  int64_t vocab = 0, origin = 0;
  float soft_cap = 0.0f;
  const void* logits = nullptr;
  const int32_t* labels = nullptr;
  const float* maximum = nullptr;
  // The terms' cotangents; `total` may be null.
  const float* sum = nullptr;
  const float* picked = nullptr;
  const float* total = nullptr;
  void* dlogits = nullptr;  // May be the logits.
};
void cross_entropy_shard_grad_rows(const CrossEntropyShardGradRows& rows, int64_t begin,
                                   int64_t end);

}  // namespace tessera
