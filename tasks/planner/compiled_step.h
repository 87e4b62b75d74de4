// SPDX-License-Identifier: Apache-2.0
// A training step that is compiled for a mesh, which may not exist here: all that the planner needs
// to know of a model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/compile/remat/remat.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/runtime/executor/executor.h"
#include "tasks/task/model_pipeline.h"

namespace tessera {

// What it points to belongs to the session that compiled the step.
struct CompiledStep {
  std::vector<StagePlan> stages;  // The program of each stage of the pipeline.
  Mesh mesh;
  int64_t tokens = 0;                  // Tokens of a global batch.
  const Graph* traced = nullptr;       // Before any pass.
  int64_t parameters = 0;              // Elements.
  int64_t arena_bytes = 0;             // What a device allocates for this and all other programs.
  std::vector<SavedValue> saved = {};  // For the backward pass.
  std::optional<ModelPipeline> pipeline = {};

  // The program of the stage that needs most memory.
  const StepProgram& largest() const {
    return *std::ranges::max(stages, {}, [](const StagePlan& each) {
              return each.plan->use.peak;
            }).plan;
  }
};

}  // namespace tessera
