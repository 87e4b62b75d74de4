// SPDX-License-Identifier: Apache-2.0
// What every mode of a run computes with: the mesh, the task, and an executor on the devices of
// this process. It has no inputs and no programs; derived sessions add them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/runtime/comm/communicator.h"
#include "core/runtime/comm/process_group.h"
#include "core/runtime/executor/executor.h"
#include "tasks/config/experiment.h"

namespace tessera {

class ModelSession {
 public:
  enum class Purpose { kRunning, kPlanning };  // A plan needs no mesh of devices, only one device.

  // The devices are this process's, in the order of their numbers; they and the processes outlive
  // the session.
  ModelSession(const ExperimentConfig& config, Purpose purpose, const std::vector<Device*>& devices,
               int64_t devices_per_process, ProcessGroup& processes);
  ModelSession(const ModelSession&) = delete;
  ModelSession& operator=(const ModelSession&) = delete;

  const BaseTask& task() const { return *task_; }
  const TrainHParams& train() const { return task_->train(); }
  const Mesh& mesh() const { return mesh_; }
  const AxisRules& rules() const { return rules_; }
  // A note on how the mesh is placed on hosts; or empty.
  const std::string& remark() const { return remark_; }
  Executor& executor() { return executor_; }
  const Communicator* communicator() const { return communicator_.get(); }
  ProcessGroup& processes() const { return processes_; }
  int64_t bytes_sent() const;  // By this process's devices so far, in collectives.
  // The weights that evaluation and decoding use: averages, if the learner keeps them.
  Weights eval_weights() const;
  // Before the executor allocates.
  int add_program(const Graph& graph, CompileOptions options = {});

 protected:
  ProcessGroup& processes_;
  Mesh mesh_;
  AxisRules rules_;
  std::string remark_;
  std::unique_ptr<BaseTask> task_;
  std::unique_ptr<Communicator> communicator_;  // Null for a run of one device, and for a plan.
  Executor executor_;

 private:
  Executor make_executor(Purpose purpose, const std::vector<Device*>& devices);
  Waits::Entry add_waits();

  Waits::Entry waits_;  // Of the communicator.
};

}  // namespace tessera
