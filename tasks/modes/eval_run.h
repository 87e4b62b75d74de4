// SPDX-License-Identifier: Apache-2.0
// --mode=eval: scores checkpoints of a run, which may be training at the same time. It reads the
// run's directory without a lock and writes eval_out/ there. Evaluation during training uses the
// same code (tasks/eval/evaluation.h).
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
#include "tasks/eval/eval_output.h"
#include "tasks/logging/console.h"
#include "tasks/train/train_session.h"

namespace tessera {

class EvalRun final : public BaseRun {
 public:
  // Arguments as of make_run.
  EvalRun(const ExperimentConfig& config, const RunOptions& options,
          const std::vector<Device*>& devices, ProcessGroup& processes);

  // Returns the exit code: 0, also when stopped by a signal. Error, after everything is scored, if
  // a loss was not finite.
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
  CheckpointWatcher feed_;  // Used by process 0, which tells the others.
  Console console_;
  std::unique_ptr<Session> session_;  // Null until there is a checkpoint.
  std::string problem_;               // The first loss that was not finite; "" if none.
};

}  // namespace tessera
