// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run that a mode reads one after another: the newest, a given step, all, or
// each new one of a running job. All processes read the same. It takes no lock and writes nothing;
// the job may remove a checkpoint before it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/log/console.h"
#include "tasks/run/run_setting.h"
#include "tasks/run/session/model_session.h"
#include "tasks/run/shutdown/stop_signal.h"

namespace tessera {

class CheckpointWatcher;

class CheckpointSequence {
 public:
  struct Next;  // What the watcher chose.
  // `to_do` says what checkpoints are needed for, "decode with". Following a job skips the steps
  // for which `is_done`, which process 0 asks, returns true. What is passed by reference outlives
  // the sequence.
  CheckpointSequence(const RunContext& context, const CheckpointChoice& choice,
                     std::string_view to_do, std::function<bool(int64_t step)> is_done,
                     Console& console);
  ~CheckpointSequence();

  // Reads the first checkpoint, so that its errors and those of `open` are found before for_each().
  // `open` makes the session that the weights are read into, allocated; it is called once. A job
  // that is followed may have no checkpoint yet, and no data. Error if there is none and none to
  // wait for. A collective call, as is the next.
  void begin(std::function<ModelSession&()> open);
  // The step that begin() has read, if any.
  std::optional<int64_t> first() const;
  // Calls `use` with each checkpoint, whose weights the session then has, until there are no more
  // or a signal stops it. `use` returns the signal at which it ended early, in all processes, or 0.
  void for_each(
      const std::function<int64_t(const CheckpointInfo& info, const StopSignal& stop)>& use);

 private:
  Next agreed_next(const std::function<bool()>& stop);
  void read(int64_t step);
  bool has_stopped(int64_t signal, int64_t used);

  const ExperimentConfig& config_;
  ProcessGroup& processes_;
  Console& console_;
  CheckpointStore store_;
  CheckpointChoice::Kind kind_;
  std::unique_ptr<CheckpointWatcher> watcher_;  // Used by process 0, which tells the others.
  std::function<ModelSession&()> open_;
  ModelSession* session_ = nullptr;     // Null until there is a checkpoint.
  std::optional<CheckpointInfo> read_;  // It was read, and not used yet.
  bool has_noted_ = false;              // A change of the model.
};

}  // namespace tessera
