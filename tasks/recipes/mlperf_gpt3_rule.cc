// SPDX-License-Identifier: Apache-2.0
#include "tasks/recipes/mlperf_gpt3_rule.h"

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr int64_t kReferenceBatch = 1536;
constexpr int64_t kWarmupSteps = 265;   // Of the reference batch.
constexpr int64_t kDecayEnd = 108'600;  // Of the reference batch.
constexpr int64_t kMediumBatch = 3584;  // The largest one with the lower rate.
constexpr int64_t kLargestBatch = 8192;

int64_t scaled(int64_t steps, int64_t batch) {
  return (steps * kReferenceBatch + batch - 1) / batch;
}

}  // namespace

MlperfGpt3Rule mlperf_gpt3_rule(int64_t global_batch_size) {
  if (global_batch_size < 1 || global_batch_size > kLargestBatch)
    fail(
        "MLPerf's rule for GPT-3 is for global batches of 1 to {} sequences, got {}; set "
        "learning_rate, warmup_steps and decay_end",
        kLargestBatch, global_batch_size);
  return {.learning_rate = global_batch_size <= kMediumBatch ? 2e-5 : 3e-5,
          .warmup_steps = scaled(kWarmupSteps, global_batch_size),
          .decay_end = scaled(kDecayEnd, global_batch_size)};
}

}  // namespace tessera
