// SPDX-License-Identifier: Apache-2.0
// --mode=eval: CheckpointWatcher chooses the checkpoints, EvalRun scores each.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/message.h"
#include "core/base/seconds.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/directory/find_runs.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/eval/eval_output.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/modes/checkpoint_runs.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/shutdown/stop_signal.h"
#include "tasks/run/train/loop_state.h"
#include "tasks/run/train/train_session.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kSlice{20};

void sleep_unless(const std::function<bool()>& stop, double seconds) {
  const auto end = in_seconds(seconds);
  while (Clock::now() < end && !stop()) std::this_thread::sleep_for(kSlice);
}

// Chooses the checkpoints to score: the newest, a given step, all, or each new one of a running
// job. It takes no lock and writes nothing; a checkpoint may be removed by the job before it is
// opened.
class CheckpointWatcher {
 public:
  // `scored`: steps to skip when following a job.
  CheckpointWatcher(const std::filesystem::path& run_directory, const CheckpointChoice& choice,
                    const EvaluationHParams& p, std::set<int64_t> scored)
      : run_directory_(run_directory),
        store_(run_directory / "checkpoints"),
        choice_(choice),
        p_(p),
        settled_(std::move(scored)),
        alive_at_(Clock::now()) {
    if (choice.kind != CheckpointChoice::Kind::kFollow) settled_.clear();
  }

  struct Next {
    enum class Kind { kStep, kWait, kEnd };
    Kind kind = Kind::kEnd;
    int64_t step = 0;
    std::string why;  // For kWait and kEnd: something to print, or "".
  };
  using Kind = Next::Kind;
  // kWait, after a short sleep, while a followed job has saved nothing new; `stop` ends the sleep.
  // Error if there is nothing to score and nothing to wait for.
  Next next(const std::function<bool()>& stop) {
    if (choice_.kind == CheckpointChoice::Kind::kFollow) return next_followed(stop);
    const std::vector<int64_t> steps = store_.steps();
    if (steps.empty() && num_scored_ == 0)
      fail("{} holds no checkpoint to evaluate; train first", store_.directory().string());
    if (choice_.kind == CheckpointChoice::Kind::kAll) {
      if (!listed_) to_score_ = steps;
      listed_ = true;
      for (const int64_t step : to_score_)
        if (!settled_.contains(step)) return {Kind::kStep, step, ""};
      return {};
    }
    if (num_scored_ > 0) return {};
    if (choice_.kind == CheckpointChoice::Kind::kNewest) return {Kind::kStep, steps.back(), ""};
    if (std::ranges::find(steps, choice_.step) == steps.end())
      fail("{}: no checkpoint of step {}; there are {}", store_.directory().string(), choice_.step,
           fmt::join(steps, ", "));
    return {Kind::kStep, choice_.step, ""};
  }

  // Tells whether the last kStep was scored or had been removed.
  void settle(int64_t step, bool was_scored) {
    settled_.insert(step);
    num_scored_ += was_scored ? 1 : 0;
  }

 private:
  // First asks whether the job is done: checkpoints saved before that are then visible.
  Next next_followed(const std::function<bool()>& stop) {
    const bool done = job_is_done();
    const std::vector<int64_t> steps = store_.steps();
    for (const int64_t step : steps)
      if (!settled_.contains(step)) return {Kind::kStep, step, ""};
    if (done) return {Kind::kEnd, 0, "the job is done"};
    if (const std::string signs = signs_of_life(steps); signs != last_signs_) {
      last_signs_ = signs;
      alive_at_ = Clock::now();
    }
    const double silent = seconds_since(alive_at_);
    if (silent >= p_.follow_patience_seconds)
      return {Kind::kEnd, 0,
              fmt::format("the job has written nothing for {:.3g} s "
                          "(eval.follow_patience_seconds), so it is considered stopped",
                          p_.follow_patience_seconds)};
    if (steps.empty() && !std::exchange(has_said_, true)) return {Kind::kWait, 0, waiting()};
    sleep_unless(stop, p_.follow_poll_seconds);
    return {Kind::kWait, 0, ""};
  }

  // The directory may be mistyped.
  std::string waiting() const {
    const std::string for_what =
        std::filesystem::exists(run_directory_)
            ? fmt::format("the first checkpoint in {}", store_.directory().string())
            : fmt::format("a job to create {}, which does not exist{}", run_directory_.string(),
                          did_you_mean_run(run_directory_));
    return fmt::format("waiting up to {:.6g} s (eval.follow_patience_seconds) for {}",
                       p_.follow_patience_seconds, for_what);
  }

  // The last event that a job writes; if it is resumed, others follow.
  bool job_is_done() const { return end_of_log(run_directory_).event == "done"; }

  std::string signs_of_life(const std::vector<int64_t>& steps) const {
    const std::filesystem::path log = run_directory_ / "metrics.jsonl";
    std::error_code error;
    const auto size = std::filesystem::file_size(log, error);
    if (error) return fmt::format("{}", fmt::join(steps, " "));
    const auto time = std::filesystem::last_write_time(log, error).time_since_epoch().count();
    return fmt::format("{} at {}, {}", size, time, fmt::join(steps, " "));
  }

  std::filesystem::path run_directory_;
  CheckpointStore store_;
  CheckpointChoice choice_;
  EvaluationHParams p_;
  std::set<int64_t> settled_;
  int64_t num_scored_ = 0;
  bool listed_ = false;  // kAll: whether the existing checkpoints have been listed.
  std::vector<int64_t> to_score_;
  bool has_said_ = false;  // What it waits for.
  std::string last_signs_;
  Clock::time_point alive_at_;
};

using Next = CheckpointWatcher::Next;

class EvalRun final : public BaseRun {
 public:
  EvalRun(const RunContext& context, const EvalOptions& options)
      : config_(context.config),
        setting_(context.setting),
        options_(options),
        devices_(context.devices),
        processes_(context.processes),
        out_(setting_.job_log_dir),
        store_(setting_.job_log_dir / "checkpoints"),
        watcher_(setting_.job_log_dir, options.checkpoint, config_.eval, scored_steps()),
        console_(console_mode(setting_, processes_)) {
    // Configuration errors are reported before the first score. A followed job may have saved
    // nothing yet, and its data may not exist yet.
    if (options.checkpoint.kind != CheckpointChoice::Kind::kFollow) {
      agreed_next([] { return false; });
      open_session();
    } else if (processes_.all_reduce_max(store_.steps().empty() ? 0 : 1, "what to score") > 0) {
      open_session();
    }
  }

  // Returns the exit code: 0, also when stopped by a signal. Error, after everything is scored, if
  // a loss was not finite.
  int run() override {
    if (setting_.dry_run) {
      check_first_checkpoint();
      console_.info("dry run: ready to score checkpoints of " + setting_.job_log_dir.string());
      return 0;
    }
    score_all();
    if (!problem_.empty()) fail("{}; the model cannot be used at that step", problem_);
    return 0;
  }

 private:
  // Process 0 picks the checkpoint so that all processes agree.
  Next agreed_next(const std::function<bool()>& stop) {
    Next next;
    if (processes_.is_first()) next = watcher_.next(stop);
    unpack(processes_.broadcast(pack(next.kind, next.step, next.why), "the checkpoint to score"),
           next.kind, next.step, next.why);
    return next;
  }

  void open_session() {
    session_ = std::make_unique<Session>(config_,
                                         SessionOptions{.run_directory = setting_.job_log_dir,
                                                        .input_directory = setting_.input_directory,
                                                        .devices = setting_.devices,
                                                        .trains = false},
                                         devices_, processes_);
    if (session_->evaluation().datasets().empty())
      fail("{} has no eval_inputs, so there is nothing to score", setting_.experiment);
    if (!session_->remark().empty()) console_.info(session_->remark());
  }

  // Once: usually it is the same for all checkpoints.
  void note_model_change(const Checkpoint& checkpoint) {
    const std::string note =
        note_of_model_change(checkpoint.info().hparams, config_, checkpoint.info().step);
    if (!note.empty() && !std::exchange(noted_, true)) console_.info(note);
  }

  // False, in all processes, if it was removed meanwhile: some may have read their part before.
  bool restore(int64_t step) {
    std::string problem;
    std::map<std::string, InputState> evals;
    try {
      const Checkpoint checkpoint = store_.open(step);
      note_model_change(checkpoint);
      restore_state(session_->executor(), session_->task().model().parameters(), checkpoint);
      evals = loop_state_of(checkpoint.info()).evals;
    } catch (const std::exception& error) {
      problem = error_text(error);
    }
    const std::vector<std::string> problems =
        processes_.all_gather(problem, "reading a checkpoint");
    const auto first =
        std::ranges::find_if_not(problems, [](const std::string& each) { return each.empty(); });
    if (first == problems.end()) {
      session_->evaluation().restore(evals);
      return true;
    }
    const bool is_gone = processes_.is_first() && !std::filesystem::exists(store_.path_of(step));
    if (processes_.all_reduce_max(is_gone ? 1 : 0, "whether a checkpoint is gone") == 0)
      fail("{}", *first);
    return false;
  }

  // Lets a dry run fail where scoring would.
  void check_first_checkpoint() {
    if (!session_) return;  // A followed job has saved nothing yet.
    const Next next = agreed_next([] { return true; });
    if (next.kind == Next::Kind::kStep) restore(next.step);
  }

  void score_all() {
    const StopSignal stop;
    int64_t scored = 0;
    const auto has_stopped = [&](int64_t signal) {
      if (signal != 0)
        console_.info(fmt::format("{}: stopped after {} checkpoints",
                                  StopSignal::name(static_cast<int>(signal)), scored));
      return signal != 0;
    };
    for (;;) {
      if (has_stopped(processes_.all_reduce_max(stop.requested(), "whether to stop"))) return;
      const Next next = agreed_next([&] { return stop.requested() != 0; });
      if (!next.why.empty()) console_.info(next.why);
      if (next.kind == Next::Kind::kWait) continue;
      if (next.kind == Next::Kind::kEnd) return;
      if (!session_) open_session();
      const bool is_there = restore(next.step);
      if (is_there) {
        if (has_stopped(score(next.step, stop))) return;
        ++scored;
      } else {
        console_.info(
            fmt::format("step {}: its checkpoint was removed before it could be read", next.step));
      }
      watcher_.settle(next.step, is_there);
    }
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

  // Steps for which every dataset has a line.
  std::set<int64_t> scored_steps() const {
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

  ExperimentConfig config_;
  RunSetting setting_;
  EvalOptions options_;
  std::vector<Device*> devices_;
  ProcessGroup& processes_;
  EvalWriter out_;
  CheckpointStore store_;
  CheckpointWatcher watcher_;  // Used by process 0, which tells the others.
  Console console_;
  std::unique_ptr<Session> session_;  // Null until there is a checkpoint.
  bool noted_ = false;                // A change of the model.
  std::string problem_;               // The first loss that was not finite; "" if none.
};

}  // namespace

std::unique_ptr<BaseRun> eval_run(const RunContext& context, const EvalOptions& options) {
  return std::make_unique<EvalRun>(context, options);
}

}  // namespace tessera
