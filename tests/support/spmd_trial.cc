// SPDX-License-Identifier: Apache-2.0
#include "tests/support/spmd_trial.h"

#include <memory>

#include "core/passes/cost.h"
#include "core/runtime/comm/communicator.h"
#include "core/runtime/executor/executor.h"
#include "tasks/session/model_state.h"
#include "tasks/session/step_programs.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

std::vector<float> floats_of(const Executor& executor, const std::string& name, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  executor.read_state(name, std::as_writable_bytes(std::span(values)));
  return values;
}

NamedFloats weights_of(const Executor& executor, const ParameterTable& table,
                       const std::string& prefix = "") {
  NamedFloats weights;
  for (const Parameter& each : table.parameters())
    weights[each.path] = floats_of(executor, prefix + each.path, each.type.elements());
  return weights;
}

// After one step from zero, Adam's first moment is the gradient times this factor.
NamedFloats gradients_of(const Executor& executor, const ParameterTable& table) {
  const double share = 1.0 - AdamW::HParams{}.beta1;
  NamedFloats gradients = weights_of(executor, table, "learner/m/");
  for (auto& [path, values] : gradients)
    for (float& value : values) value = static_cast<float>(value / share);
  return gradients;
}

}  // namespace

SpmdRun run_spmd(const SpmdCase& trial, const BeforeJoining& before_joining) {
  const int64_t devices = trial.mesh().num_devices();
  const auto owned = make_test_devices(devices, trial.threads);
  const auto communicator = make_test_communicator({.local_devices = devices,
                                                    .transport = nullptr,
                                                    .timeout = std::chrono::minutes(2),
                                                    .before_joining = before_joining});
  Executor executor(pointers(owned), *communicator);
  const std::unique_ptr<BaseTask> task = Template<BaseTask>(spmd_task(trial)).instantiate();
  const ParameterTable& table = task->model().parameters();

  SpmdRun run;
  CompileOptions options;
  options.mesh = trial.mesh();
  options.remat = parse_remat_policy(trial.remat);
  options.verify_passes = true;
  options.on_stage = [&](std::string_view stage, const Graph& graph) {
    if (stage != "lower") return;
    for (const CollectiveUse& each : collectives(graph))
      (each.op == "permute" ? run.planned_moves : run.planned_bytes) += each.bytes_per_step();
  };
  const int program = executor.add_program(traced_step(trial), options);
  executor.allocate();
  initialise_state(executor, table, static_cast<uint64_t>(task->train().seed), 1);
  run.weights = weights_of(executor, table);

  TrainProgram train(executor, program, *task);
  for (int64_t step = 0; step < trial.steps; ++step) {
    const StepResult result = train.run(spmd_batch(trial, step), step);
    run.losses.push_back(result.loss);
    run.norms.push_back(result.grad_norm);
    if (step == 0) run.gradients = gradients_of(executor, table);
  }
  run.trained = weights_of(executor, table);
  for (int64_t device = 0; device < devices; ++device)
    run.bytes_sent.push_back(communicator->bytes_sent(device));
  return run;
}

}  // namespace tessera
