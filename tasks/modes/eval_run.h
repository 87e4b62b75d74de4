// SPDX-License-Identifier: Apache-2.0
// --mode=eval: scores checkpoints of a run that may be training meanwhile. It reads the run's
// directory, takes no lock, and adds to eval_out/ there. Evaluation in training is the trainer's,
// by the same code (evaluation.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/runtime/comm/process_group.h"
#include "tasks/base_run.h"
#include "tasks/config/experiment.h"
#include "tasks/config/run_options.h"
#include "tasks/eval/checkpoint_watcher.h"
#include "tasks/eval/eval_writer.h"
#include "tasks/logging/console.h"
#include "tasks/train/train_session.h"

namespace tessera {

class EvalRun final : public BaseRun {
 public:
  // As Trainer's.
  EvalRun(const ExperimentConfig& config, const RunOptions& options,
          const std::vector<Device*>& devices, ProcessGroup& processes);

  // Returns the exit code: 0, also when it was told to stop. Error, after all that there is to
  // score, if a loss was not finite.
  int run() override;

 private:
  CheckpointWatcher::Next agreed_next(const std::function<bool()>& stop);
  void open_session();
  bool restore(int64_t step);
  void check_first_checkpoint();
  void score_all();
  void score(int64_t step);
  std::set<int64_t> scored_steps() const;

  ExperimentConfig config_;
  RunOptions options_;
  std::vector<Device*> devices_;
  ProcessGroup& processes_;
  EvalWriter out_;
  CheckpointStore store_;
  CheckpointWatcher feed_;  // Asked by process 0, for all.
  Console console_;
  std::unique_ptr<Session> session_;  // Null until there is a checkpoint.
  std::string problem_;               // The first loss that was not finite; empty: all were.
};

}  // namespace tessera
