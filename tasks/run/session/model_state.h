// SPDX-License-Identifier: Apache-2.0
// Initializes, loads and saves the parameters and state on this process's devices: initial values,
// checkpoints, another run's weights. Only the devices' own parts are created or read.
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
#include "tasks/task/hparams.h"

namespace tessera {

// Draws initial weights on up to `threads` threads (0: all). The learner's state becomes zero, but
// averages of weights become the weights.
void initialise_state(Executor& executor, const ParameterTable& table, uint64_t seed, int threads);

// The two steps of initialise_state that set state: all state becomes zero; averages become the
// weights.
void clear_state(Executor& executor);
void start_averages(Executor& executor, const ParameterTable& table);

// The name of a weight in a checkpoint; other state has its own name there.
std::string parameter_array_path(std::string_view parameter_path);

// What this process writes to a checkpoint: the blocks of parameters and state that its devices
// own, with their names in a checkpoint: "params/<path>" and "learner/…". They refer to the
// devices' memory.
std::vector<CheckpointArray> checkpoint_arrays(const Executor& executor);

// Error if the checkpoint has weights that the model lacks: a model that reads a part of the
// weights is not the one that was trained. Every reader of a checkpoint calls it.
void expect_known_weights(const Checkpoint& checkpoint, const ParameterTable& table);

// Reads all parameters and state. Error if the checkpoint lacks one, has another shape, or has
// weights that the model lacks. Arrays of state that are f32 in the one and bf16 in the other are
// converted, to bf16 by rounding to nearest; returns how many.
int64_t restore_state(Executor& executor, const ParameterTable& table,
                      const Checkpoint& checkpoint);

// The result of load_weights().
struct LoadedWeights {
  std::vector<std::string> taken;     // "destination <- source"
  std::vector<std::string> left_out;  // Weights of the other run that nothing here reads.
  std::vector<std::string> initial;   // Weights of this run that keep their initial values.
};

// Reads weights from another run's checkpoint, by rules; averages become the weights.
LoadedWeights load_weights(Executor& executor, const ParameterTable& table,
                           const Checkpoint& checkpoint, const InitFrom& p);

// Sets the weights to the average of several checkpoints: `shares` has one for each of them, with
// the sum 1. The sums are in f64. Errors are those of restore_state(). Averages that a learner
// keeps are not read.
void average_weights(Executor& executor, const ParameterTable& table,
                     const std::vector<Checkpoint>& checkpoints, const std::vector<double>& shares);

// Where a run resumes: at its newest checkpoint or, if the user asks for it, the newest undamaged
// one. All processes of the run resume from the same checkpoint.

enum class OnDamage {
  kFail,
  kFallBack,          // Resume from the one before; rename the damaged ones.
  kFallBackReadOnly,  // Like kFallBack, but does not rename them (a dry run).
};

struct RestoredState {
  CheckpointInfo info;
  int64_t damaged = 0;  // Newer checkpoints that were skipped.
};

// Reads the state into the executor, if there is a checkpoint. Calls `say` with what was skipped
// and why. Error if all are damaged, or if one does not fit the model.
std::optional<RestoredState> restore_newest(Executor& executor, const ParameterTable& table,
                                            const CheckpointStore& store, ProcessGroup& processes,
                                            OnDamage on_damage,
                                            const std::function<void(const std::string&)>& say);

}  // namespace tessera
