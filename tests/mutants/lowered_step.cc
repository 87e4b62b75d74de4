// SPDX-License-Identifier: Apache-2.0
#include "tests/mutants/lowered_step.h"

#include <utility>

#include "core/compile/decompose.h"
#include "core/compile/numerics.h"
#include "core/compile/spmd/lower.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

// A mutant may leave devices waiting for each other.
constexpr std::chrono::milliseconds kTimeout{1500};

DeviceGraph lowered_for(const Graph& shared, const CompileOptions& options, int64_t device) {
  if (!options.pipeline) return {lower(shared, options.mesh, device), {}};
  StageGraph stage = lower_stage(shared, options.mesh, *options.pipeline, device);
  return {std::move(stage.graph), std::move(stage.homes)};
}

Graph decomposed_in_f64(const Graph& lowered) {
  return in_f64(decompose(lowered, [](const OpDef&) { return false; }));
}

}  // namespace

LoweredStep::LoweredStep(const Composition& composition)
    : traced(tessera::traced(composition, Place::kMesh)) {
  const CompileOptions options = traced.options(Numerics::kF64);
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
    return {decomposed_in_f64(graphs[number]), step.graphs[number].homes};
  };
  program_ = executor_->add_program(in_f64(step.traced.graph),
                                    step.traced.options(Numerics::kF64), graph_of);
  executor_->allocate();
}

RunNumbers LoweredRun::draw(int64_t number) {
  return run_steps(*executor_, program_, step_.traced, number);
}

}  // namespace tessera
