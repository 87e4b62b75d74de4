// SPDX-License-Identifier: Apache-2.0
// The lowered programs of a composition, one for each device, and runs of them, changed or not, in
// f64.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/runtime/comm/communicator.h"
#include "core/runtime/executor/executor.h"
#include "tests/composition/trial.h"

namespace tessera {

struct LoweredStep {
  explicit LoweredStep(const Composition& composition);

  int64_t devices() const { return traced.mesh.num_devices(); }
  int64_t stage_of(int64_t device) const { return traced.mesh.stage_of(device); }

  TracedStep traced;
  std::vector<DeviceGraph> graphs;  // One for each device.
};

// Draw `number` is a batch and initial weights. A run is of one set of programs: it compiles them
// once for all draws.
class LoweredRun {
 public:
  // Error if the programs cannot be planned; an error of a device ends draw().
  LoweredRun(const LoweredStep& step, const std::vector<Graph>& graphs);
  RunNumbers draw(int64_t number);

 private:
  const LoweredStep& step_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Executor> executor_;
  int program_ = 0;
};

}  // namespace tessera
