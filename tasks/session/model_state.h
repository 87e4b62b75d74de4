// SPDX-License-Identifier: Apache-2.0
// The numbers of a run, between the arenas of this process's devices and where they come from or go
// to: fresh initial values, checkpoints, another run's weights. Each device's part alone is made or
// read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "core/runtime/comm/process_group.h"
#include "core/runtime/executor/executor.h"
#include "layers/parameter.h"
#include "tasks/train_hparams.h"

namespace tessera {

// Initial weights, drawn on up to `threads` threads (0: all); the learner's state zero, but
// averages of weights are the weights.
void initialise_state(Executor& executor, const ParameterTable& table, uint64_t seed, int threads);

// The parts of that: everything but weights zero, and averages made the weights.
void clear_state(Executor& executor);
void start_averages(Executor& executor, const ParameterTable& table);

// What a checkpoint calls a weight; other state has its own name there.
std::string parameter_array_path(std::string_view parameter_path);

// What this process writes to a checkpoint: the blocks its devices own of everything that persists,
// as a checkpoint names it: "params/<path>" and "learner/…". They refer
// to the devices' memory.
std::vector<CheckpointArray> checkpoint_arrays(Executor& executor);

// Fills everything that persists. Error for what the checkpoint lacks, or has in another shape.
void restore_state(Executor& executor, const Checkpoint& checkpoint);

// Weights from another run's checkpoint, by rules; averages follow. Returns one line for each
// weight taken, "destination <- source".
std::vector<std::string> load_weights(Executor& executor, const ParameterTable& table,
                                      const Checkpoint& checkpoint, const InitFrom& p);

// Where a run goes on from: its newest checkpoint, or, if the user asks for it, the newest that is
// not damaged. All processes of the run go on from the same.

enum class OnDamage {
  kFail,
  kFallBack,          // Go on from the one before, and set the damaged ones aside.
  kFallBackReadOnly,  // The same, but leave them where they are (a dry run).
};

struct RestoredState {
  CheckpointInfo info;
  int64_t damaged = 0;  // Newer checkpoints that were passed over.
};

// Reads the state into the executor; nothing if there is no checkpoint. `say` is told what was
// passed over, and why. Error if all are damaged, or if one does not suit the model.
std::optional<RestoredState> restore_newest(Executor& executor, const CheckpointStore& store,
                                            ProcessGroup& processes, OnDamage on_damage,
                                            const std::function<void(const std::string&)>& say);

}  // namespace tessera
