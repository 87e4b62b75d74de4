// SPDX-License-Identifier: Apache-2.0
// --mode=eval: scores checkpoints of a run.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "tasks/run/eval/eval_output.h"
#include "tasks/run/modes/modes.h"
#include "tasks/run/session/run_over_checkpoints.h"
#include "tasks/run/train/loop_state.h"
#include "tasks/run/train/train_session.h"

namespace tessera {
namespace {

class EvalRun final : public RunOverCheckpoints {
 public:
  EvalRun(const RunContext& context, const EvalOptions& options)
      : RunOverCheckpoints(context, options.checkpoint, "evaluate"), out_(setting_.job_log_dir) {
    for (const auto& [dataset, unused] : config_.eval_inputs)
      scored_.push_back(out_.steps(dataset));
    begin();
  }

  // Error, after everything is scored, if a loss was not finite.
  int run() override {
    RunOverCheckpoints::run();
    if (!problem_.empty()) fail("{}; the model cannot be used at that step", problem_);
    return 0;
  }

 private:
  ModelSession& open_session() override {
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

  // Whether every dataset has a line.
  bool is_done(int64_t step) const override {
    return std::ranges::all_of(scored_, [&](const auto& steps) { return steps.contains(step); });
  }

  std::string heading(int64_t) const override { return ""; }

  int64_t use(const CheckpointInfo& info, const StopSignal& stop) override {
    const int64_t step = info.step;
    session_->evaluation().restore(loop_state_of(info).evals);
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

  EvalWriter out_;
  std::vector<std::set<int64_t>> scored_;  // Steps of each dataset, before this start.
  std::unique_ptr<Session> session_;       // Null until there is a checkpoint.
  std::string problem_;                    // The first loss that was not finite; "" if none.
};

}  // namespace

std::unique_ptr<BaseRun> eval_run(const RunContext& context, const EvalOptions& options) {
  return std::make_unique<EvalRun>(context, options);
}

}  // namespace tessera
