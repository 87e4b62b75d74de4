// SPDX-License-Identifier: Apache-2.0
// The part of the training loop's state that checkpoints store beside arrays: input positions,
// early stopping, the mesh, the code, and what was interrupted.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint.h"
#include "core/runtime/comm/process_group.h"
#include "inputs/base_input.h"
#include "tasks/run/run_setting.h"
#include "tasks/task/base_task.h"
#include "tasks/task/hparams.h"

namespace tessera {

// Decides after each evaluation whether the run has reached a target or stopped improving.
class EarlyStopper {
 public:
  explicit EarlyStopper(const EarlyStopping& p) : p_(p) {}

  // Takes the metrics of one evaluation ("eval/validation/log_pplx", …), among them the watched
  // one. Returns why to stop, or "".
  std::string observe(const std::map<std::string, double>& metrics);

  // Stored in checkpoints, so that a resumed run decides as an uninterrupted one.
  struct State {
    double best = std::numeric_limits<double>::infinity();
    int64_t evals_since_best = 0;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  EarlyStopping p_;
  State state_;
};

struct LoopState {
  InputState input;
  std::map<std::string, InputState> evals;  // States of eval datasets that continue, by name.
  std::string stop_reason;  // Why the run ended before its last step; "" if it did not.
  EarlyStopper::State early_stopper;
  std::string mesh;  // "replica=1 data=4 mdl=2".
  CodeStamp code;
  std::string computation;  // Computation::record() of the step.
  // What a stop signal interrupted after the step, "evaluation" or "samples": a resume begins with
  // it. "": nothing.
  std::string interrupted;
};

void put_loop_state(const LoopState& state, CheckpointInfo* info);
LoopState loop_state_of(const CheckpointInfo& info);

// The state of an input over all processes, so that any number of processes can resume from it: the
// union of their cursors and the furthest position. A collective call with the same result
// everywhere. Error if two processes give different values for one name.
InputState merged_input_states(const InputState& mine, ProcessGroup& processes);

// A line for each change: of the mesh, `mesh` being that of this start; of the configuration, which
// `change` describes or "", with what this changes in the learning rate of the task; and of the
// code. Error, with the first layer and line that differ, if the code computes something else and
// the setting does not allow that.
std::vector<std::string> check_resume(const CheckpointInfo& info, const LoopState& state,
                                      const std::string& mesh, const std::string& change,
                                      const BaseTask& task, const RunSetting& setting);

}  // namespace tessera
