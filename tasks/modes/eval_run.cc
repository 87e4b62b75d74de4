// SPDX-License-Identifier: Apache-2.0
#include "tasks/modes/eval_run.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "tasks/eval/eval_output.h"
#include "tasks/session/message.h"
#include "tasks/session/model_state.h"
#include "tasks/shutdown/stop_signal.h"
#include "tasks/train/loop_state.h"

namespace tessera {
namespace {

using Next = CheckpointWatcher::Next;

}  // namespace

EvalRun::EvalRun(const ExperimentConfig& config, const RunOptions& options,
                 const std::vector<Device*>& devices, ProcessGroup& processes)
    : config_(config),
      options_(options),
      devices_(devices),
      processes_(processes),
      out_(options.job_log_dir),
      store_(options.job_log_dir / "checkpoints"),
      feed_(options.job_log_dir, options.checkpoint, config.eval, scored_steps()),
      console_(options.verbosity == Verbosity::kSilent || !processes.is_first()
                   ? Console::Mode::kSilent
                   : Console::detect()) {
  // Configuration errors are reported before the first score. A followed job may have saved nothing
  // yet, and its data may not exist yet.
  if (options.checkpoint.kind != CheckpointChoice::Kind::kFollow) {
    agreed_next([] { return false; });
    open_session();
  } else if (processes.all_reduce_max(store_.steps().empty() ? 0 : 1, "what there is to score") >
             0) {
    open_session();
  }
}

void EvalRun::open_session() {
  session_ = std::make_unique<Session>(config_,
                                       SessionOptions{.run_directory = options_.job_log_dir,
                                                      .input_directory = options_.input_directory,
                                                      .devices = options_.devices,
                                                      .trains = false},
                                       devices_, processes_);
  if (session_->evaluation().datasets().empty())
    fail("{} has no eval_inputs, so there is nothing to score", options_.experiment);
  if (!session_->remark().empty()) console_.info(session_->remark());
}

// Steps for which every dataset has a line.
std::set<int64_t> EvalRun::scored_steps() const {
  std::set<int64_t> common;
  bool is_first = true;
  for (const auto& [dataset, unused] : config_.eval_inputs) {
    const std::set<int64_t> steps = out_.steps(dataset);
    std::set<int64_t> both;
    std::set_intersection(common.begin(), common.end(), steps.begin(), steps.end(),
                          std::inserter(both, both.end()));
    common = is_first ? steps : both;
    is_first = false;
  }
  return common;
}

// Process 0 picks the checkpoint so that all processes agree.
Next EvalRun::agreed_next(const std::function<bool()>& stop) {
  Next next;
  if (processes_.is_first()) next = feed_.next(stop);
  unpack(processes_.broadcast(pack(next.kind, next.step, next.why), "the checkpoint to score"),
         next.kind, next.step, next.why);
  return next;
}

int EvalRun::run() {
  if (options_.dry_run) {
    check_first_checkpoint();
    console_.info("dry run: ready to score checkpoints of " + options_.job_log_dir.string());
    return 0;
  }
  score_all();
  if (!problem_.empty()) fail("{}; the model is of no use at that step", problem_);
  return 0;
}

// Lets a dry run fail where scoring would.
void EvalRun::check_first_checkpoint() {
  if (!session_) return;  // A followed job has saved nothing yet.
  const Next next = agreed_next([] { return true; });
  if (next.kind == Next::Kind::kStep) restore(next.step);
}

void EvalRun::score_all() {
  const StopSignal stop;
  int64_t scored = 0;
  for (;;) {
    if (const int64_t signal = processes_.all_reduce_max(stop.requested(), "whether to stop")) {
      console_.info(fmt::format("{}: stopped after {} checkpoints",
                                StopSignal::name(static_cast<int>(signal)), scored));
      return;
    }
    const Next next = agreed_next([&] { return stop.requested() != 0; });
    if (next.kind == Next::Kind::kWait) continue;
    if (next.kind == Next::Kind::kEnd) {
      if (!next.why.empty()) console_.info(next.why);
      return;
    }
    if (!session_) open_session();
    const bool is_there = restore(next.step);
    if (is_there) {
      score(next.step);
      ++scored;
    } else {
      console_.info(
          fmt::format("step {}: its checkpoint was removed before it could be read", next.step));
    }
    feed_.settle(next.step, is_there);
  }
}

// False, in all processes, if it was removed meanwhile: some may have read their part before.
bool EvalRun::restore(int64_t step) {
  std::string problem;
  std::map<std::string, InputState> evals;
  try {
    const Checkpoint checkpoint = store_.open(step);
    restore_state(session_->executor(), checkpoint);
    evals = loop_state_of(checkpoint.info()).evals;
  } catch (const std::exception& error) {
    problem = error_text(error);
  }
  std::vector<std::string> problems = processes_.all_gather(problem, "reading a checkpoint");
  const auto first = std::find_if(problems.begin(), problems.end(),
                                  [](const std::string& each) { return !each.empty(); });
  if (first == problems.end()) {
    session_->evaluation().restore(evals);
    return true;
  }
  const bool is_gone = processes_.is_first() && !std::filesystem::exists(store_.path_of(step));
  if (processes_.all_reduce_max(is_gone ? 1 : 0, "whether a checkpoint is gone") == 0)
    fail("{}", *first);
  return false;
}

void EvalRun::score(int64_t step) {
  const EvalReport report = session_->evaluation().run(processes_);
  print_evaluation(step, report, &console_);
  if (processes_.is_first()) out_.add(step, report.metrics);
  if (const auto undefined = undefined_loss(report.metrics); undefined && problem_.empty())
    problem_ = fmt::format("step {}: {}", step, *undefined);
}

}  // namespace tessera
