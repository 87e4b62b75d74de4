// SPDX-License-Identifier: Apache-2.0
// The numbers of a run, between the arenas of this process's devices and where they come from or go
// to: fresh initial values, checkpoints, another run's weights. Each device's part alone is made or
// read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/runtime/checkpoint/checkpoint.h"
#include "core/runtime/executor/executor.h"
#include "layers/parameter.h"
#include "tasks/config/train_hparams.h"

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
// as a checkpoint names it: "params/<path>" and "learner/…". The spans look into the arenas.
std::vector<CheckpointArray> checkpoint_arrays(Executor& executor);

// Fills everything that persists. Error for what the checkpoint lacks, or has in another shape.
void restore_state(Executor& executor, const Checkpoint& checkpoint);

// Weights from another run's checkpoint, by rules; averages follow. Returns one line for each
// weight taken, "destination <- source".
std::vector<std::string> load_weights(Executor& executor, const ParameterTable& table,
                                      const Checkpoint& checkpoint, const InitFrom& p);

}  // namespace tessera
