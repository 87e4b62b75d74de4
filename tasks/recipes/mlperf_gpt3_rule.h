// SPDX-License-Identifier: Apache-2.0
// The learning rate of MLPerf's GPT-3 benchmark as a function of the global batch: steps are given
// for batches of 1536 sequences and scaled so that the numbers of sequences stay. Pax:
// set_adam_and_learning_rate_schedule in paxml/tasks/lm/params/c4.py.
#pragma once

#include <cstdint>

namespace tessera {

struct MlperfGpt3Rule {
  double learning_rate = 0.0;  // At the end of the warm-up.
  int64_t warmup_steps = 0;
  int64_t decay_end = 0;  // Of the cosine, in steps from the start of the run.
};

// Error for batches of less than 1 or more than 8192 sequences, for which there is no rule.
MlperfGpt3Rule mlperf_gpt3_rule(int64_t global_batch_size);

}  // namespace tessera
