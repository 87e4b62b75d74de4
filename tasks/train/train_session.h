// SPDX-License-Identifier: Apache-2.0
// The task, its inputs and its programs, compiled into one executor for the devices of this
// process. The trainer loops over steps and saves checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/executor/executor.h"
#include "inputs/base_input.h"
#include "inputs/prefetch.h"
#include "tasks/base_task.h"
#include "tasks/config/experiment.h"
#include "tasks/decode/training_samples.h"
#include "tasks/eval/evaluation.h"
#include "tasks/metric_means.h"
#include "tasks/plan/plan.h"
#include "tasks/session/model_session.h"

namespace tessera {

// The results of one training step.
struct StepResult {
  double loss = 0.0;
  double grad_norm = 0.0;
  double learning_rate = 0.0;
  bool applied = true;
  int64_t skipped = 0;
  int64_t skipped_in_a_row = 0;
  std::map<std::string, double> metrics;          // Means over the batch.
  std::map<std::string, double> parameter_norms;  // "parameter_norm/<path>", if enabled.
};

// Wraps the executor's program of a training step: writes the batch and scalars, reads the results.
class TrainProgram {
 public:
  TrainProgram(Executor& executor, int program, const BaseTask& task);
  // Runs step number `step` (from 0) on this batch; updates weights and state in place.
  StepResult run(const Batch& batch, int64_t step);
  int program() const { return program_; }

 private:
  Executor& executor_;
  int program_;
  const BaseTask& task_;
  std::vector<std::string> metrics_, norms_;
};

struct SessionOptions {
  std::filesystem::path run_directory;    // Where inputs find an existing corpus snapshot,
  std::filesystem::path input_directory;  // and where they write a new one.
  int64_t devices = 1;                    // Of this process; used if the mesh has no shape.
  bool keeps_tokenizer = true;            // Write the tokenizer to the run's directory.
  bool trains = true;                     // false: evaluation only.
  bool allocates = true;                  // false: plan only, for any mesh, on the first device.
  std::function<void(std::string_view stage, const Graph&)> on_stage;  // For the training graph.
};

class Session : public ModelSession {
 public:
  // The devices are those of this process, in the order of their numbers. They and the processes
  // outlive the session.
  Session(const ExperimentConfig& config, const SessionOptions& options,
          const std::vector<Device*>& devices, ProcessGroup& processes);

  Prefetch& input() { return *input_; }
  // Tokens of a global batch.
  int64_t tokens_per_step() const;

  Plan plan() { return make_plan(*this, train_graph_, train_->program(), tokens_per_step()); }
  const Graph& train_graph() const { return train_graph_; }  // As traced.
  int train_program_number() const { return train_->program(); }
  TrainProgram& train_program() { return *train_; }
  TrainingSamples* samples() { return samples_ ? &*samples_ : nullptr; }  // Null if disabled.
  Evaluation& evaluation() { return *evaluation_; }
  const Evaluation& evaluation() const { return *evaluation_; }

 private:
  void open_inputs(const ExperimentConfig& config, const SessionOptions& options);
  void compare_data() const;
  Infeed infeed(int64_t global_batch_size, const SessionOptions& options) const;
  OpenedInput open_input(const Template<BaseInput>& input_tpl, const std::string& where,
                         const SessionOptions& options);
  void compile(const ExperimentConfig& config, const SessionOptions& options);
  int add_program(const Graph& graph, const SessionOptions& options);
  void check_vocabulary(const Graph& logits_graph) const;

  std::unique_ptr<Prefetch> input_;
  std::optional<Evaluation> evaluation_;
  Graph train_graph_;
  std::optional<TrainProgram> train_;
  std::optional<TrainingSamples> samples_;
};

}  // namespace tessera
