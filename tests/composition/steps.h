// SPDX-License-Identifier: Apache-2.0
// The training steps of a composition: traced, and run with all their numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/compile/numerics.h"
#include "core/graph/graph.h"
#include "core/runtime/executor/compile.h"
#include "core/runtime/executor/executor.h"
#include "tasks/run/session/step_programs.h"
#include "tests/composition/model.h"

namespace tessera {

// The numbers of a run by name: "step 0: loss", "step 0: learner/m/lm.softmax.w", …. What is wrong
// without a comparison is a name, too.
using RunNumbers = std::map<std::string, std::vector<double>>;
// Initial weights have names that begin so.
inline constexpr std::string_view kStart = "start: ";

struct TracedStep {
  CompositionModel model;
  std::unique_ptr<BaseTask> task;
  std::optional<ModelPipeline> pipeline;
  Mesh mesh;
  Graph graph;
};
// Error if the type rules or the configuration refuse the model.
TracedStep traced(CompositionModel model);

// Names of parameters and state of which devices that hold the same block have different bits. Only
// one device's block is read for a comparison or a checkpoint.
std::vector<std::string> differing_copies(const Executor& executor);

// What task.train and the mesh of the step say.
CompileOptions compile_options(const TracedStep& step, Numerics numerics);

// Runs some steps by `train` on the executor, whose weights are new, and returns their numbers. The
// first step gets the batch with number `first_batch`.
using TrainStep = std::function<StepResult(const Batch& batch, int64_t number)>;
RunNumbers numbers_of_steps(const TracedStep& step, const Executor& executor,
                            const TrainStep& train, int64_t steps, int64_t first_batch = 0);

// At least two steps: the second one uses the state of the first.
RunNumbers run_steps(const TracedStep& step, Numerics numerics, int64_t steps = 2);

}  // namespace tessera
