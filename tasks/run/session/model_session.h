// SPDX-License-Identifier: Apache-2.0
// What every mode needs to compute: the mesh, the task, and an executor on this process's devices.
// It has neither inputs nor programs (tasks/run/train/train_session.h,
// tasks/run/decode/decode_program.h).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime/comm/communicator.h"
#include "core/runtime/comm/process_group.h"
#include "core/runtime/executor/executor.h"
#include "tasks/run/log/console.h"
#include "tasks/run/run_setting.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/model_pipeline.h"

namespace tessera {

// Only process 0 prints, and nothing if the setting asks for silence.
Console console_of(const RunSetting& setting, const ProcessGroup& processes);

// File of a run's directory with the kernels that its devices have chosen by trials
// (Device::share_choices).
inline constexpr const char* kKernelChoicesFile = "kernel_choices.txt";

class ModelSession {
 public:
  enum class Purpose { kRunning, kPlanning };  // A plan, for any mesh, uses only the first device.

  // The devices are those of this process, in the order of their numbers. They and the processes
  // outlive the session. Kernels are chosen as in the run of this directory, if it has one.
  ModelSession(const ExperimentConfig& config, Purpose purpose, const std::vector<Device*>& devices,
               int64_t devices_per_process, ProcessGroup& processes,
               const std::filesystem::path& run_directory = {});
  ModelSession& operator=(ModelSession&&) = delete;  // Neither copied nor moved.

  const BaseTask& task() const { return *task_; }
  const TrainHParams& train() const { return task_->train(); }
  const Mesh& mesh() const { return mesh_; }
  const AxisRules& rules() const { return rules_; }
  // Into how many parts the mesh splits the rows of a batch.
  int64_t batch_parts() const;
  // How the layers are divided over the stages of the mesh; nullopt if they are not.
  const std::optional<ModelPipeline>& pipeline() const { return pipeline_; }
  // A note on how the mesh maps to hosts; or "".
  const std::string& remark() const { return remark_; }
  Executor& executor() { return executor_; }
  const Executor& executor() const { return executor_; }
  const Communicator* communicator() const { return communicator_.get(); }
  ProcessGroup& processes() const { return processes_; }
  int64_t bytes_sent() const;  // By this process's devices, in collectives so far.
  // The weights that evaluation and decoding read: the moving average, if the learner keeps one.
  Weights eval_weights() const;
  // Adds a program for this mesh, before the executor allocates. A collective call: all processes
  // use the kernels that one of them chose by trials.
  int add_program(Graph graph, CompileOptions options = {});

 protected:
  ProcessGroup& processes_;
  Device& device_;  // The first.
  Mesh mesh_;
  AxisRules rules_;
  std::string remark_;
  std::unique_ptr<BaseTask> task_;
  std::optional<ModelPipeline> pipeline_;
  std::unique_ptr<Communicator> communicator_;  // Null for one device, and for a plan.
  Executor executor_;

 private:
  std::optional<ModelPipeline> make_pipeline();
  Executor make_executor(Purpose purpose, const std::vector<Device*>& devices);
  StallProbes::Registration add_stall_probe();

  StallProbes::Registration stall_probe_;  // For the communicator.
};

}  // namespace tessera
