// SPDX-License-Identifier: Apache-2.0
// Trains a composition for some steps on its mesh and on one device, and compares every number: the
// loss, metrics, the global norm, the norm of each gradient, each weight and each optimizer slot.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/compile/numerics.h"
#include "core/runtime/executor/executor.h"
#include "tests/composition/composition.h"
#include "tests/composition/model.h"

namespace tessera {

// The numbers of a run by name: "step 0: loss", "step 0: learner/m/lm.softmax.w", ….
using RunNumbers = std::map<std::string, std::vector<double>>;

enum class Place { kMesh, kOneDevice };

// The type rules or the configuration refuse a composition while it is traced on its mesh. Any
// later error is a failure.
struct Refused {
  std::string message;
};

// A composition's training step, on its mesh or on one device.
struct TracedStep {
  CompositionModel model;
  std::unique_ptr<BaseTask> task;
  std::optional<ModelPipeline> pipeline;
  Mesh mesh;
  Graph graph;

  CompileOptions options(Numerics numerics) const;
};
TracedStep traced(const Composition& composition, Place place);

// Runs two steps from new weights, of which the second uses the state of the first, and returns all
// numbers after each. `draw` gives the weights and the batches.
RunNumbers run_steps(Executor& executor, int program, const TracedStep& step, int64_t draw = 0);

// The largest difference between two runs.
struct Difference {
  // ‖difference‖ / ‖expected‖; for arrays that are small beside others of their kind, relative to a
  // thousandth of the largest norm.
  double error = 0.0;
  std::string name;  // Name of the number.
};
Difference difference(const RunNumbers& got, const RunNumbers& expected);

// A composition on its mesh against one device.
struct Verdict {
  std::optional<std::string> refusal;  // Why it was not run, without names and numbers.
  std::optional<std::string> error;    // Message of an Error after tracing.
  Difference f64;
  Difference standard;
  double tolerance = 0.0;  // For `standard`.
  bool fails() const;
  std::string text() const;
};

// For rounding errors of f64 after two steps.
inline constexpr double kF64Tolerance = 1e-12;

Verdict verdict_on(const Composition& composition);

}  // namespace tessera
