// SPDX-License-Identifier: Apache-2.0
// --mode=score: the log-likelihoods of continuations that a file of requests gives, with the
// weights of a checkpoint. It reads the run's directory without a lock.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "core/devices/device.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/run/run_setting.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

struct ScoreOptions {
  CheckpointChoice checkpoint;
  std::filesystem::path requests;  // A request a line (inputs/score_requests.h).
  // A line for each request; "": score_out/<name of requests>_step_<10 digits>.jsonl of the run.
  std::filesystem::path output;
  int64_t batch_tokens = 0;     // Tokens scored at once; 0: as many as a training batch, or fewer.
  bool with_log_probs = false;  // Also those of each token.
};

// The arguments are those of train_run (tasks/run/train/trainer.h).
std::unique_ptr<BaseRun> score_run(const ExperimentConfig& config, const RunSetting& setting,
                                   const ScoreOptions& options, const std::vector<Device*>& devices,
                                   ProcessGroup& processes);

}  // namespace tessera
