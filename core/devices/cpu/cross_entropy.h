// SPDX-License-Identifier: Apache-2.0
// The arguments of the vector loops of cross-entropy, for all their targets.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace tessera {

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

}  // namespace tessera
