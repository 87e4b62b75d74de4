// SPDX-License-Identifier: Apache-2.0
// Parameters of the kernels in cross_entropy.cu.
#pragma once

#include "plugins/cuda/kernels/rows.h"

namespace tessera::cuda {

// Rows of logits of the kernel's dtype; z are the logits after capping.
struct LogitRows {
  RowShape rows;
  const void* logits;
  const int32_t* labels;
  float soft_cap, inverse_cap;  // 0: none.
};

// A label outside the vocabulary has z = 0. Results are one a row.
struct CrossEntropyParameters {
  LogitRows z;
  float smoothing, z_loss;
  float *loss, *log_likelihood, *correct, *lse;
};

struct CrossEntropyGradParameters {
  LogitRows z;
  float smoothing, z_loss;
  const float *lse, *cotangent;
  void* dlogits;     // May be the logits.
  bool same_offset;  // Equal offsets of logits and dlogits from a multiple of 16 bytes.
};

// A shard of the vocabulary, which begins at entry `origin` of the whole.
struct CrossEntropyShardParameters {
  LogitRows z;
  int64_t origin;
  const float* maximum;
  // Results: the sum of exp(z - maximum), the uncapped logit of the label (0 if it is in another
  // shard) and, unless null, the sum of z.
  float *sum, *picked, *total;
};

struct CrossEntropyShardGradParameters {
  LogitRows z;
  int64_t origin;
  const float* maximum;
  const float *sum, *picked, *total;  // The cotangents of those results.
  void* dlogits;
  bool same_offset;
};

}  // namespace tessera::cuda
