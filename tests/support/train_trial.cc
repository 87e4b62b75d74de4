// SPDX-License-Identifier: Apache-2.0
#include "tests/support/train_trial.h"

#include <chrono>
#include <string_view>

#include "core/compile/cost.h"
#include "core/compile/remat/remat.h"
#include "tasks/run/session/model_state.h"
#include "tests/support/test_device.h"

namespace tessera {

TrainTrial::TrainTrial(const BaseTask& task, const Graph& traced, const TrainTrialOptions& options)
    : devices_(make_test_devices(options.mesh.num_devices(), options.threads)),
      communicator_(make_test_communicator({.local_devices = options.mesh.num_devices(),
                                            .transport = nullptr,
                                            .timeout = std::chrono::minutes(2),
                                            .before_joining = options.before_joining})),
      executor_(std::make_unique<Executor>(pointers(devices_), *communicator_)) {
  CompileOptions compile;
  compile.mesh = options.mesh;
  compile.remat = parse_remat_policy(task.train().remat_policy);
  compile.numerics = options.numerics;
  compile.verify_passes = options.verify_passes;
  compile.on_stage = [&](std::string_view stage, const Graph& graph) {
    if (stage != "lower") return;
    for (const CollectiveUse& each : collectives(graph))
      (each.op == "permute" ? planned_moves_ : planned_bytes_) += each.bytes_per_step();
  };
  if (options.pipeline) compile.pipeline = table_for(*options.pipeline, traced);
  const int program = executor_->add_program(traced, compile);
  executor_->allocate();
  initialise_state(*executor_, task.model().parameters(), static_cast<uint64_t>(task.train().seed),
                   1);
  train_ = std::make_unique<TrainProgram>(*executor_, program, task);
}

// If an all-reduce has fewer elements than devices, not all devices send; the total is the same.
bool TrainTrial::sent_as_planned(int64_t steps, double slack) const {
  int64_t sent = 0;
  for (int64_t device = 0; device < std::ssize(devices_); ++device)
    sent += communicator_->bytes_sent(device);
  const double each = static_cast<double>(sent) / static_cast<double>(std::ssize(devices_) * steps);
  const auto planned = static_cast<double>(planned_bytes_);
  return each >= planned * (1.0 - slack) &&
         each <= planned * (1.0 + slack) + static_cast<double>(planned_moves_);
}

}  // namespace tessera
