// SPDX-License-Identifier: Apache-2.0
// What a run computes with: the task, its inputs and its programs, compiled into one executor for
// the devices of this process. It neither loops nor saves; the trainer does.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime/executor.h"
#include "core/runtime/fabric.h"
#include "core/runtime/processes.h"
#include "inputs/prefetch.h"
#include "tasks/experiment.h"
#include "tasks/programs.h"

namespace tessera {

struct SessionOptions {
  std::filesystem::path run_directory;  // Where inputs may keep a frozen corpus.
  int64_t devices = 1;                  // Of this process, for a mesh that does not say.
  bool trains = true;                   // false: evaluation only.
  bool allocates = true;                // false: a plan alone, of any size, on the first device.
  std::function<void(std::string_view stage, const Graph&)> on_stage;  // Of the training graph.
};

class Session {
 public:
  // The devices are this process's, in the order of their numbers; they and the processes outlive
  // the session.
  Session(const ExperimentConfig& config, const SessionOptions& options,
          const std::vector<Device*>& devices, Processes& processes);

  const BaseTask& task() const { return *task_; }
  const TrainHParams& train() const { return task_->train(); }
  const Mesh& mesh() const { return mesh_; }
  // What there is to say of how the mesh lies on its hosts; or empty.
  const std::string& remark() const { return remark_; }
  Executor& executor() { return executor_; }
  const Fabric* fabric() const { return fabric_.get(); }
  Prefetch& input() { return *input_; }
  int64_t bytes_sent() const;  // By this process's devices so far, in collectives.
  // Tokens of one global batch.
  int64_t tokens_per_step() const;

  const Graph& train_graph() const { return train_graph_; }  // As traced.
  int train_program_number() const { return train_->program(); }
  TrainProgram& train_program() { return *train_; }
  LogitsProgram* logits_program() {
    return logits_ ? &*logits_ : nullptr;
  }  // If samples are asked for.
  // Metrics of every eval dataset, "eval/<dataset>/<metric>".
  std::map<std::string, double> evaluate();
  std::vector<std::string> eval_metric_names() const;

 private:
  struct EvalDataset {
    std::string name;
    std::unique_ptr<BaseInput> input;
    std::optional<EvalProgram> program;
  };
  Executor make_executor(const SessionOptions& options, const std::vector<Device*>& devices);
  void open_inputs(const ExperimentConfig& config, const SessionOptions& options);
  Infeed infeed(int64_t global_batch_size, const SessionOptions& options) const;
  std::unique_ptr<BaseInput> open_input(const Template<BaseInput>& input_tpl,
                                        const std::string& where, const SessionOptions& options);
  void compile(const SessionOptions& options);
  int add_program(const Graph& graph, const SessionOptions& options);
  void check_vocabulary(const Graph& logits_graph) const;
  Weights eval_weights() const;

  Processes& processes_;
  Mesh mesh_;
  AxisRules rules_;
  std::string remark_;
  std::unique_ptr<BaseTask> task_;
  std::unique_ptr<Fabric> fabric_;  // Null for a run of one device, and for a plan.
  Executor executor_;
  std::unique_ptr<Prefetch> input_;
  std::vector<EvalDataset> eval_datasets_;
  Graph train_graph_;
  std::optional<TrainProgram> train_;
  std::optional<LogitsProgram> logits_;
};

}  // namespace tessera
