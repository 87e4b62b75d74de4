// SPDX-License-Identifier: Apache-2.0
// --mode=eval: scores the checkpoints of a CheckpointSequence.
#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "tasks/run/eval/eval_output.h"
#include "tasks/run/modes/checkpoint_runs.h"
#include "tasks/run/session/checkpoint_sequence.h"
#include "tasks/run/train/loop_state.h"
#include "tasks/run/train/train_session.h"

namespace tessera {
namespace {

class EvalRun final : public BaseRun {
 public:
  EvalRun(const RunContext& context, const EvalOptions& options)
      : config_(context.config),
        setting_(context.setting),
        devices_(context.devices),
        processes_(context.processes),
        out_(setting_.job_log_dir),
        console_(console_mode(setting_, processes_)),
        checkpoints_({config_, setting_, devices_, processes_}, options.checkpoint, "evaluate",
                     is_scored(), console_) {
    checkpoints_.begin([this]() -> ModelSession& { return open_session(); });
  }

  // Returns the exit code: 0, also when stopped by a signal. Error, after everything is scored, if
  // a loss was not finite.
  int run() override {
    if (setting_.dry_run) {
      console_.info("dry run: ready to score checkpoints of " + setting_.job_log_dir.string());
      return 0;
    }
    checkpoints_.for_each([this](const CheckpointInfo& info, const StopSignal& stop) {
      session_->evaluation().restore(loop_state_of(info).evals);
      return score(info.step, stop);
    });
    if (!problem_.empty()) fail("{}; the model cannot be used at that step", problem_);
    return 0;
  }

 private:
  Session& open_session() {
    session_ = std::make_unique<Session>(config_,
                                         SessionOptions{.run_directory = setting_.job_log_dir,
                                                        .input_directory = setting_.input_directory,
                                                        .devices = setting_.devices,
                                                        .trains = false},
                                         devices_, processes_);
    if (session_->evaluation().datasets().empty())
      fail("{} has no eval_inputs, so there is nothing to score", setting_.experiment);
    if (!session_->remark().empty()) console_.info(session_->remark());
    return *session_;
  }

  // Returns the signal at which it ended early, or 0.
  int score(int64_t step, const StopSignal& stop) {
    EvalMonitor monitor = monitor_of(stop, console_);
    monitor.examples_file = [&](const std::string& dataset) {
      std::filesystem::create_directories(out_.directory() / dataset);
      return out_.directory() / dataset / fmt::format("step_{:010}.jsonl", step);
    };
    const EvalReport report = session_->evaluation().run(processes_, monitor);
    if (report.signal != 0) return report.signal;
    print_evaluation(step, report, &console_);
    if (processes_.is_first()) out_.add(step, report);
    if (const auto undefined = undefined_loss(report.metrics); undefined && problem_.empty())
      problem_ = fmt::format("step {}: {}", step, *undefined);
    return 0;
  }

  // Tells whether every dataset has a line for a step.
  std::function<bool(int64_t step)> is_scored() const {
    std::vector<std::set<int64_t>> scored;
    for (const auto& [dataset, unused] : config_.eval_inputs) scored.push_back(out_.steps(dataset));
    return [scored](int64_t step) {
      return std::ranges::all_of(scored, [&](const auto& steps) { return steps.contains(step); });
    };
  }

  ExperimentConfig config_;
  RunSetting setting_;
  std::vector<Device*> devices_;
  ProcessGroup& processes_;
  EvalWriter out_;
  Console console_;
  CheckpointSequence checkpoints_;
  std::unique_ptr<Session> session_;  // Null until there is a checkpoint.
  std::string problem_;               // The first loss that was not finite; "" if none.
};

}  // namespace

std::unique_ptr<BaseRun> eval_run(const RunContext& context, const EvalOptions& options) {
  return std::make_unique<EvalRun>(context, options);
}

}  // namespace tessera
