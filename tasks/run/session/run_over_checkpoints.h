// SPDX-License-Identifier: Apache-2.0
// RunOverCheckpoints: the base of modes that read checkpoints of a run one after another, such as
// --mode=eval: the newest, a given step, all, or each new one of a running job. All processes read
// the same. It takes no lock; the job may remove a checkpoint before it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/log/console.h"
#include "tasks/run/run_setting.h"
#include "tasks/run/session/model_session.h"
#include "tasks/run/shutdown/stop_signal.h"

namespace tessera {

class CheckpointWatcher;

class RunOverCheckpoints : public BaseRun {
 public:
  ~RunOverCheckpoints() override;
  // Uses each checkpoint until there are no more or a signal stops it; returns 0. In a dry run only
  // what begin() did.
  int run() override;

  struct Next;  // What the watcher chooses.

 protected:
  // `to_do` says what checkpoints are needed for: "decode with".
  RunOverCheckpoints(const RunContext& context, const CheckpointChoice& choice,
                     std::string_view to_do);
  // Opens the session and reads the first checkpoint; the last call of a constructor, so that this
  // finds their errors. A job that is followed may have no checkpoint yet, and no data. Error if
  // there is no checkpoint and no job is followed. A collective call.
  void begin();

  ExperimentConfig config_;
  RunSetting setting_;
  std::vector<Device*> devices_;
  ProcessGroup& processes_;
  Console console_;

 private:
  // Makes the session that weights are read into, allocated. Called once.
  virtual ModelSession& open_session() = 0;
  // Whether following a job skips the step. Only process 0 asks.
  virtual bool is_done(int64_t step) const = 0;
  // A line before the use of this step; "": none.
  virtual std::string heading(int64_t step) const = 0;
  // Uses the weights that the session has now. Returns the signal at which it ended early, in all
  // processes, or 0.
  virtual int64_t use(const CheckpointInfo& info, const StopSignal& stop) = 0;

  Next agreed_next(const std::function<bool()>& stop);
  void read(int64_t step);
  void introduce(int64_t step);
  bool has_stopped(int64_t signal, int64_t used);

  std::string to_do_;
  CheckpointStore store_;
  CheckpointChoice::Kind kind_;
  std::unique_ptr<CheckpointWatcher> watcher_;  // Used by process 0, which tells the others.
  ModelSession* session_ = nullptr;             // Null until there is a checkpoint.
  std::optional<CheckpointInfo> read_;          // It was read, and not used yet.
  bool has_noted_ = false;                      // A change of the model.
};

}  // namespace tessera
