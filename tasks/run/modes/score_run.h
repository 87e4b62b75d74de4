// SPDX-License-Identifier: Apache-2.0
// --mode=score: the log-likelihoods of continuations that a file of requests gives, with the
// weights of a checkpoint. It reads the run's directory without a lock.
#pragma once

#include <filesystem>
#include <memory>

#include "tasks/run/run_setting.h"

namespace tessera {

struct ScoreOptions {
  CheckpointChoice checkpoint;
  std::filesystem::path requests;  // A request a line (inputs/score_requests.h).
  // A line for each request; "": score_out/<name of requests>_step_<10 digits>.jsonl of the run.
  std::filesystem::path output;
  int64_t batch_tokens = 0;     // Tokens scored at once; 0: as many as a training batch, or fewer.
  bool with_log_probs = false;  // Also those of each token.
};

std::unique_ptr<BaseRun> score_run(const RunContext& context, const ScoreOptions& options);

}  // namespace tessera
