// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/session/run_over_checkpoints.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/message.h"
#include "core/base/seconds.h"
#include "core/io/storage/storage.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/log/jsonl_writer.h"
#include "tasks/run/session/model_state.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kSlice{20};

void sleep_unless(const std::function<bool()>& stop, double seconds) {
  const auto end = in_seconds(seconds);
  while (Clock::now() < end && !stop()) std::this_thread::sleep_for(kSlice);
}

}  // namespace

struct RunOverCheckpoints::Next {
  enum class Kind { kStep, kWait, kEnd };
  Kind kind = Kind::kEnd;
  int64_t step = 0;
  std::string why;  // For kWait and kEnd: something to print, or "".
};

// Chooses the next checkpoint.
class CheckpointWatcher {
 public:
  using Next = RunOverCheckpoints::Next;
  using Kind = Next::Kind;
  CheckpointWatcher(const std::filesystem::path& run_directory, const CheckpointChoice& choice,
                    const EvaluationHParams& p, std::string_view to_do,
                    std::function<bool(int64_t step)> is_done)
      : run_directory_(run_directory),
        store_(run_directory / "checkpoints"),
        choice_(choice),
        p_(p),
        to_do_(to_do),
        is_done_(std::move(is_done)),
        alive_at_(Clock::now()) {}

  // kWait, after a short sleep, while a followed job has saved nothing new; `stop` ends the sleep.
  // Error if there is nothing to read and nothing to wait for.
  Next next(const std::function<bool()>& stop) {
    if (choice_.kind == CheckpointChoice::Kind::kFollow) return next_followed(stop);
    const std::vector<int64_t> steps = store_.steps();
    if (steps.empty() && num_used_ == 0)
      fail("{} holds no checkpoint to {}; train first", store_.directory().string(), to_do_);
    if (choice_.kind == CheckpointChoice::Kind::kAll) {
      if (!is_listed_) listed_steps_ = steps;
      is_listed_ = true;
      for (const int64_t step : listed_steps_)
        if (!settled_.contains(step)) return {Kind::kStep, step, ""};
      return {};
    }
    if (num_used_ > 0) return {};
    if (choice_.kind == CheckpointChoice::Kind::kNewest) return {Kind::kStep, steps.back(), ""};
    if (std::ranges::find(steps, choice_.step) == steps.end())
      fail("{}: no checkpoint of step {}; there are {}", store_.directory().string(), choice_.step,
           fmt::join(steps, ", "));
    return {Kind::kStep, choice_.step, ""};
  }

  // Tells whether the last kStep was used or had been removed.
  void settle(int64_t step, bool was_used) {
    settled_.insert(step);
    num_used_ += was_used ? 1 : 0;
  }

 private:
  // First asks whether the job is done: checkpoints saved before that are then visible.
  Next next_followed(const std::function<bool()>& stop) {
    const bool done = job_is_done();
    const std::vector<int64_t> steps = store_.steps();
    for (const int64_t step : steps)
      if (!settled_.contains(step) && !is_done_(step)) return {Kind::kStep, step, ""};
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
    sleep_unless(stop, std::max(p_.follow_poll_seconds, is_url(store_.directory()) ? 5.0 : 0.0));
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
  std::string to_do_;
  std::function<bool(int64_t)> is_done_;
  std::set<int64_t> settled_;
  int64_t num_used_ = 0;
  bool is_listed_ = false;  // kAll: whether the existing checkpoints have been listed.
  std::vector<int64_t> listed_steps_;
  bool has_said_ = false;  // What it waits for.
  std::string last_signs_;
  Clock::time_point alive_at_;
};

RunOverCheckpoints::RunOverCheckpoints(const RunContext& context, const CheckpointChoice& choice,
                                       std::string_view to_do)
    : config_(context.config),
      setting_(context.setting),
      devices_(context.devices),
      processes_(context.processes),
      console_(console_of(setting_, processes_)),
      to_do_(to_do),
      store_(setting_.job_log_dir / "checkpoints"),
      kind_(choice.kind),
      watcher_(
          std::make_unique<CheckpointWatcher>(setting_.job_log_dir, choice, config_.eval, to_do,
                                              [this](int64_t step) { return is_done(step); })) {}

RunOverCheckpoints::~RunOverCheckpoints() = default;

RunOverCheckpoints::Next RunOverCheckpoints::agreed_next(const std::function<bool()>& stop) {
  Next next;
  if (processes_.is_first()) next = watcher_->next(stop);
  unpack(processes_.broadcast(pack(next.kind, next.step, next.why), "the checkpoint to read"),
         next.kind, next.step, next.why);
  return next;
}

void RunOverCheckpoints::begin() {
  const bool may_wait = kind_ == CheckpointChoice::Kind::kFollow;
  if (may_wait && processes_.all_reduce_max(store_.steps().empty() ? 0 : 1, "checkpoints") == 0)
    return;
  const Next next = agreed_next([] { return true; });
  if (next.kind == Next::Kind::kStep) read(next.step);
}

// Not if it was removed meanwhile, in any process: some may have read their part before.
void RunOverCheckpoints::read(int64_t step) {
  if (session_ == nullptr) session_ = &open_session();
  std::string problem;
  std::optional<CheckpointInfo> info;
  try {
    const Checkpoint checkpoint = store_.open(step);
    // Usually it is the same for all checkpoints.
    const std::string note = note_of_model_change(checkpoint.info().hparams, config_, step);
    if (!note.empty() && !std::exchange(has_noted_, true)) console_.info(note);
    restore_state(session_->executor(), session_->task().model().parameters(), checkpoint);
    info = checkpoint.info();
  } catch (const std::exception& error) {
    problem = error_text(error);
  }
  const std::vector<std::string> problems = processes_.all_gather(problem, "reading a checkpoint");
  const auto first =
      std::ranges::find_if_not(problems, [](const std::string& each) { return each.empty(); });
  if (first == problems.end()) {
    read_ = std::move(info);
    return;
  }
  const bool is_gone = processes_.is_first() && std::ranges::count(store_.steps(), step) == 0;
  if (processes_.all_reduce_max(is_gone ? 1 : 0, "whether a checkpoint is gone") == 0)
    fail("{}", *first);
  console_.info(fmt::format("step {}: its checkpoint was removed before it could be read", step));
  watcher_->settle(step, false);
}

void RunOverCheckpoints::introduce(int64_t step) {
  if (const std::string text = heading(step); !text.empty()) console_.info(text);
}

bool RunOverCheckpoints::has_stopped(int64_t signal, int64_t used) {
  if (signal != 0)
    console_.info(fmt::format("{}: stopped after {} checkpoints",
                              StopSignal::name(static_cast<int>(signal)), used));
  return signal != 0;
}

int RunOverCheckpoints::run() {
  if (setting_.dry_run) {
    if (read_) introduce(read_->step);
    console_.info(fmt::format("dry run: ready to {} checkpoints of {}", to_do_,
                              setting_.job_log_dir.string()));
    return 0;
  }
  const StopSignal stop;
  for (int64_t used = 0;;) {
    if (has_stopped(processes_.all_reduce_max(stop.requested(), "whether to stop"), used)) return 0;
    if (!read_) {
      const Next next = agreed_next([&] { return stop.requested() != 0; });
      if (!next.why.empty()) console_.info(next.why);
      if (next.kind == Next::Kind::kEnd) return 0;
      if (next.kind == Next::Kind::kStep) read(next.step);
      continue;
    }
    introduce(read_->step);
    if (has_stopped(use(*read_, stop), used)) return 0;
    ++used;
    watcher_->settle(read_->step, true);
    read_.reset();
  }
}

}  // namespace tessera
