// SPDX-License-Identifier: Apache-2.0
// A task's training step on a mesh of test devices: compiled, allocated and with initial weights.
// Counts the bytes that it plans to communicate, and those that its devices send.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/compile/numerics.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/runtime/comm/communicator.h"
#include "core/runtime/executor/executor.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/task/model_pipeline.h"

namespace tessera {

// Each device calls it before it joins a collective; see CommunicatorOptions.
using BeforeJoining = std::function<void(int64_t device, int64_t number)>;

struct TrainTrialOptions {
  Mesh mesh;
  std::optional<ModelPipeline> pipeline;
  Numerics numerics = Numerics::kStandard;
  bool verify_passes = true;
  int threads = 1;  // Per device.
  BeforeJoining before_joining = {};
};

class TrainTrial {
 public:
  // `traced` is the task's training graph for the mesh.
  TrainTrial(const BaseTask& task, const Graph& traced, const TrainTrialOptions& options);

  Executor& executor() { return *executor_; }
  const Executor& executor() const { return *executor_; }
  StepResult step(const Batch& batch, int64_t number) { return train_->run(batch, number); }

  // Whether all devices together have sent in `steps` steps what was planned. Not for pipelines,
  // whose devices send different amounts. `slack` is relative.
  bool sent_as_planned(int64_t steps, double slack = 0.0) const;

 private:
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<TrainProgram> train_;
  // Bytes per device and step that the first device's graph plans: without permutes, and of
  // permutes, which move only some devices' shards.
  int64_t planned_bytes_ = 0, planned_moves_ = 0;
};

}  // namespace tessera
