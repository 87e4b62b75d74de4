// SPDX-License-Identifier: Apache-2.0
#include "tests/mutants/lowered_step.h"

#include <utility>

#include "core/compile/decompose.h"
#include "core/compile/numerics.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/trace.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/session/step_programs.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

// A mutant could leave devices waiting for each other. A busy machine must not look like that.
constexpr std::chrono::seconds kTimeout{30};

constexpr uint64_t kWeightSeed = 1234;
constexpr int64_t kSteps = 2;

DeviceGraph lowered_for(const Graph& shared, const CompileOptions& options, int64_t device) {
  if (!options.pipeline) return {lower(shared, options.mesh, device), {}};
  StageGraph stage = lower_stage(shared, options.mesh, *options.pipeline, device);
  return {std::move(stage.graph), std::move(stage.homes)};
}

Graph decomposed_in_f64(const Graph& lowered) {
  return in_f64(decompose(lowered, [](const OpDef&) { return false; }));
}

// Calls add(name, value) for each scalar that the program returns.
template <typename Add>
void for_each_scalar(const Graph& graph, const Add& add) {
  const std::vector<GraphOutput> outputs = graph.outputs();
  for (const GraphOutput& output : outputs)
    if (!output.is_update && graph.type(output.value).axes.empty() &&
        is_floating(graph.type(output.value).dtype))
      add("probe/" + output.name, output.value);
}

// The executor reads results from the first device. Keeps those of all devices in a state that is
// split over them.
void add_probes(Graph& whole, const Mesh& mesh) {
  const Axis axis{"device", mesh.num_devices(), mesh.names()};
  for_each_scalar(whole, [&](const std::string& name, ValueId) {
    const ValueId probe = whole.add_input(name, InputKind::kState, make_type(DType::kF64, {axis}));
    whole.add_update(name, probe);
  });
}

void add_local_probes(Graph& graph) {
  const Mesh local;
  const AxisRules rules;
  const TraceScope scope(graph, local, rules);
  for_each_scalar(graph, [&](const std::string& name, ValueId value) {
    const Axis axis{"device", 1, {}};
    graph.add_input(name, InputKind::kState, make_type(DType::kF64, {axis}));
    const Tensor own = as_dtype(Tensor(&graph, value), DType::kF64);
    graph.add_update(name, broadcast(own, {axis}).id());
  });
}

}  // namespace

LoweredStep::LoweredStep(const Composition& composition)
    : traced(tessera::traced(model_of(composition, Place::kMesh))) {
  const CompileOptions options = compile_options(traced, Numerics::kF64);
  std::vector<SavedValue> saved;
  const Graph shared = compile_shared(traced.graph, options, saved);
  for (int64_t device = 0; device < devices(); ++device)
    graphs.push_back(lowered_for(shared, options, device));
}

LoweredRun::LoweredRun(const LoweredStep& step, const std::vector<Graph>& graphs)
    : step_(step), devices_(make_test_devices(step.devices(), 1)) {
  communicator_ = make_test_communicator(
      {.local_devices = step.devices(), .transport = nullptr, .timeout = kTimeout});
  executor_ = std::make_unique<Executor>(pointers(devices_), *communicator_);
  const auto graph_of = [&](int64_t device, Stages) -> DeviceGraph {
    const auto number = static_cast<size_t>(device);
    Graph graph = decomposed_in_f64(graphs[number]);
    add_local_probes(graph);
    return {std::move(graph), step.graphs[number].homes};
  };
  Graph whole = in_f64(step.traced.graph);
  add_probes(whole, step.traced.mesh);
  program_ = executor_->add_program(whole, compile_options(step.traced, Numerics::kF64), graph_of);
  executor_->allocate();
}

RunNumbers LoweredRun::draw(int64_t number) {
  const BaseTask& task = *step_.traced.task;
  initialise_state(*executor_, task.model().parameters(),
                   kWeightSeed + static_cast<uint64_t>(number), 1);
  TrainProgram train(*executor_, program_, task);
  return numbers_of_steps(
      step_.traced, *executor_,
      [&](const Batch& batch, int64_t step) { return train.run(batch, step); }, kSteps,
      number * kSteps);
}

}  // namespace tessera
