// SPDX-License-Identifier: Apache-2.0
// The task, its inputs and its programs, compiled into one executor for the devices of this
// process; its introduction on the console; and the measured steps. The trainer loops over steps
// and saves checkpoints.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/devices/device.h"
#include "core/runtime/executor/launch_trace.h"
#include "inputs/base_input.h"
#include "inputs/prefetch.h"
#include "tasks/planner/compiled_step.h"
#include "tasks/planner/hardware/hardware.h"
#include "tasks/planner/plan.h"
#include "tasks/run/decode/training_samples.h"
#include "tasks/run/eval/evaluation.h"
#include "tasks/run/log/console.h"
#include "tasks/run/observe/nonfinite_search.h"
#include "tasks/run/run_setting.h"
#include "tasks/run/session/model_session.h"
#include "tasks/run/session/step_programs.h"
#include "tasks/task/config/experiment.h"
#include "tasks/task/step_sizes.h"

namespace tessera {

struct SessionOptions {
  std::filesystem::path run_directory;    // Where inputs find an existing corpus snapshot,
  std::filesystem::path input_directory;  // and where they write a new one.
  int64_t devices = 1;                    // In this process; used if the mesh has no shape.
  bool keeps_tokenizer = true;            // Write the tokenizer to the run's directory.
  bool starts_over = false;               // --restart: the directory has an earlier run's files.
  bool trains = true;                     // false: evaluation only.
  bool allocates = true;                  // false: plan only, for any mesh, on the first device.
  std::function<void(std::string_view stage, const Graph&)> on_stage;  // For the training graph.
  bool inspects = false;  // Whether it outputs what layers inspect() (layers/inspect.h).
  std::optional<Communication> communication;  // In the training step (CompileOptions).
  std::optional<Hardware> launch_costs;        // For the schedule of its overlapped collectives.
};

class Session : public ModelSession {
 public:
  // The devices are those of this process, in the order of their numbers. They and the processes
  // outlive the session.
  Session(const ExperimentConfig& config, const SessionOptions& options,
          const std::vector<Device*>& devices, ProcessGroup& processes);

  Prefetch& input() { return *input_; }
  const Prefetch& input() const { return *input_; }
  const StepSizes& sizes() const { return *sizes_; }

  // The training step of a phase, for the planner; valid as long as the session.
  CompiledStep compiled_step(const StepSize& size) const {
    return compiled(size, steps_[kPlain][size.program]);
  }
  CompiledStep compiled_step() const { return compiled_step(sizes_->main()); }
  // The plan of the main phase, with the others; with a hardware file, also predictions.
  Plan plan(const std::optional<Hardware>& hardware = {}) const;
  // Writes plan.txt, plan.json, program.json and the choices of kernels.
  void write_plan(const std::filesystem::path& run_directory);
  // The traced graph and the program of a step, counted from 0; of the main phase, where optimizers
  // renew nothing (BaseOptimizer::interval).
  const Graph& train_graph(int64_t step) const { return step_at(step).graph; }
  TrainProgram& train_program(int64_t step) { return *step_at(step).train; }
  const Graph& train_graph() const { return steps_[kPlain][sizes_->main().program].graph; }
  TrainProgram& train_program() { return *steps_[kPlain][sizes_->main().program].train; }
  TrainingSamples* samples() { return samples_.get(); }  // Null if disabled.
  Evaluation& evaluation() { return *evaluation_; }
  const Evaluation& evaluation() const { return *evaluation_; }

 private:
  void open_inputs(const ExperimentConfig& config, const SessionOptions& options);
  void compare_data() const;
  void check_tokenizers(const SessionOptions& options) const;
  Infeed infeed(const StepSizes& sizes, const SessionOptions& options) const;
  OpenedInput open_input(const Template<BaseInput>& input_tpl, const std::string& where,
                         const SessionOptions& options, const std::vector<TrainPhase>& phases = {});
  void add_train_programs(const SessionOptions& options);
  struct Step;
  // Steps in which optimizers renew (BaseOptimizer::interval), and those with histograms.
  enum Kind : uint8_t { kPlain = 0, kRenews = 1, kHistograms = 2, kKinds = 4 };
  bool has_kind(int kind) const;
  Step make_step(const StepSize& size, int kind, const SessionOptions& options);
  const Step& step_at(int64_t step) const;
  CompiledStep compiled(const StepSize& size, const Step& step) const;
  void compile(const ExperimentConfig& config, const SessionOptions& options);
  void check_vocabulary(const Graph& logits_graph) const;

  struct Step {
    Graph graph;
    int program = 0;
    std::unique_ptr<TrainProgram> train;
  };
  std::unique_ptr<Prefetch> input_;
  std::optional<StepSizes> sizes_;
  std::unique_ptr<Evaluation> evaluation_;
  // By kind and StepSize::program; empty if the session does not train, or without that kind.
  std::array<std::vector<Step>, kKinds> steps_;
  std::unique_ptr<TrainingSamples> samples_;
};

// Error if early stopping or save_keep_best names a metric that evaluation does not have, or if a
// tracker's configuration is wrong.
void require_metrics(const Session& session);

// Prints what precedes the first step: `title` (experiment and run directory), devices, `note`,
// weights, cost of a step, and warnings about layouts. `device` is one of the devices.
void introduce_run(const std::string& title, const Session& session, const std::string& note,
                   const Device& device, Console& console);
void warn_of_layouts(const Session& session, Console& console);

// Initial weights from another run, which it prints.
void take_weights(Session& session, const InitFrom& other, Console& console);

// A training step that was run.
struct FinishedStep {
  StepResult result;
  double seconds = 0.0;     // From the end of the step before, or from begin_step(), to its end.
  double input_wait = 0.0;  // Part of it, in which training waited for a batch.
  // For the first step since this start whose loss or gradient is not finite: where that begins, or
  // how to find it. Else "".
  std::string nonfinite;
  std::optional<Batch> skipped_batch;  // Set if the step was skipped.
};

// Runs training steps, of which the host may start one before the last is done: measures their
// time, counts the bytes that they send, and traces the kernels of the steps that --profile
// selects. The first step that is skipped for values that are not finite is repeated launch by
// launch, unless a later step has changed the weights; the repetition counts as the step.
class StepRunner {
 public:
  // All processes trace the window, if there is one, and process 0 writes `trace_file`. The session
  // runs on the devices of `search`. What is passed by reference outlives the runner.
  StepRunner(Session& session, const std::optional<ProfileWindow>& window,
             std::filesystem::path trace_file, Console& console, NonfiniteSearch& search);

  // The time of the next step begins, unless a step is under way.
  void begin_step();
  // Starts the step numbered `step`, from 0, on this batch, which the input gets back, unless it is
  // in FinishedStep::skipped_batch.
  void start(Batch batch, int64_t step, double input_wait);
  // Waits for the oldest step that was started.
  FinishedStep finish();
  // Steps that were started and not finished, and how many may be when the next one is started. A
  // traced step is alone.
  size_t under_way() const { return session_.executor().under_way(); }
  size_t most_under_way() const;
  // Bytes that each device sent per step on average since this start, to compare with the plan.
  // Empty for a single device.
  std::map<std::string, double> traffic(int64_t devices_here) const;

 private:
  using Clock = std::chrono::steady_clock;
  void write_trace(const ProfileWindow& window, int64_t step);
  struct Started {
    int64_t step = 0;
    Batch batch;
  };
  void look_for_nonfinite(const Started& started, FinishedStep* finished);

  Session& session_;
  std::optional<ProfileWindow> window_;
  std::filesystem::path trace_file_;
  Console& console_;
  NonfiniteSearch& search_;
  bool has_searched_ = false;
  std::deque<Started> started_;  // Steps under way.
  LaunchTrace trace_;
  Clock::time_point last_end_;     // End of the last step, or begin_step() after it.
  double input_wait_ = 0.0;        // Since then.
  int64_t taken_ = 0;              // Steps since this start.
  std::optional<int64_t> traced_;  // The step under way, if it is traced.
  int64_t sent_ = 0;               // Bytes sent in these steps by the devices of this process,
  int64_t sent_before_ = 0;        // up to when its session had sent this many.
};

}  // namespace tessera
