// SPDX-License-Identifier: Apache-2.0
// What --search keeps of an experiment: its model, global batch and optimizer, and what it needs to
// know about them to list candidates.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "layers/parameter.h"
#include "tasks/task/config/experiment.h"

namespace tessera {

// The configuration of the experiment with these settings ("path=value") after those of the user.
using Configure = std::function<ExperimentConfig(const std::vector<std::string>& sets)>;

// Optimizer state in bf16.
struct SmallerState {
  std::vector<std::string> settings;  // Empty: the optimizer has no such setting, or uses it.
  std::vector<Parameter> stored;      // See Recipe::stored.
};

struct Recipe {
  ExperimentConfig config;
  int64_t devices = 1;       // Size of its mesh.
  int64_t slices = 1;        // The product of its DCN shape.
  int64_t global_batch = 1;  // Sequences.
  int64_t seq_len = 0;
  int64_t microbatches = 1;
  std::string remat_policy;
  std::vector<std::string> remat_policies;  // It, and others that save other values.
  bool has_schedule = false;                // A pipeline schedule is set.
  bool has_stack = false;    // It has a stack of layers, which a pipeline can divide.
  int64_t layers = 0;        // Layers of the stack.
  bool has_experts = false;  // A mixture of experts.
  // Parameters and arrays of optimizer state: a parameter with the type of the array, unsplit.
  std::vector<Parameter> stored;
  SmallerState smaller_state;

  // The stored arrays with these settings of the state (Candidate::state).
  const std::vector<Parameter>& stored_with(const std::vector<std::string>& state) const {
    return state.empty() ? stored : smaller_state.stored;
  }
};

// Traces the step on one device. `devices`: how many a mesh without a shape has. Throws the errors
// of a run.
Recipe read_recipe(ExperimentConfig config, int64_t devices);

// Computes Recipe::smaller_state.
SmallerState find_smaller_state(const Configure& configure, const Recipe& recipe);

}  // namespace tessera
