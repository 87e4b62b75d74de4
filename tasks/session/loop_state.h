// SPDX-License-Identifier: Apache-2.0
// What a checkpoint keeps of the training loop beside arrays: where the inputs are, why to stop,
// and what it was computed on.
#pragma once

#include <map>
#include <string>

#include "core/runtime/checkpoint/checkpoint.h"
#include "inputs/base_input.h"
#include "tasks/session/early_stopper.h"

namespace tessera {

struct LoopState {
  InputState input;
  std::map<std::string, InputState> evals;  // Of eval datasets that roll on, by name.
  std::string stop_reason;  // Why the run ended before its last step; empty if it did not.
  EarlyStopper::State early_stopper;
  std::string mesh;  // "replica=1 data=4 mdl=2"; empty in files that do not say.
};

void put_loop_state(const LoopState& state, CheckpointInfo* info);
LoopState loop_state_of(const CheckpointInfo& info);

}  // namespace tessera
