// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/shutdown/stop_signal.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/terminal.h"
#include "core/io/storage/retry.h"
#include "tasks/run/log/run_log.h"

namespace tessera {
namespace {

// Any thread may receive a signal.
std::atomic<int> received = 0;
static_assert(decltype(stop_asked_at)::is_always_lock_free);
std::mutex mutex;  // Guards the variables below.
int listeners = 0;
int stoppers = 0;  // Listeners that stop the run.
bool heeded = false;
struct sigaction before[std::size(kStopSignals)];

extern "C" void on_stop_signal(int signal) {
  if (received.exchange(signal) == 0) stop_asked_at = std::chrono::steady_clock::now();
}

constexpr std::chrono::milliseconds kLongWait{500};
// For this long after this process was suspended, its waits do not show that others are missing.
constexpr std::chrono::seconds kResumeGrace{2};

}  // namespace

StopSignal::StopSignal(Answer answer) : answer_(answer) {
  const std::lock_guard lock(mutex);
  if (answer_ == Answer::kStops) ++stoppers;
  if (++listeners > 1) return;
  received = 0;
  stop_asked_at = std::chrono::steady_clock::time_point();
  heeded = false;
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kStopSignals); ++i) {
    const int signal = kStopSignals[i];
    // At a time limit Slurm sends SIGTERM twice: to the job and to its step.
    action.sa_flags = SA_RESTART | (signal == SIGINT ? static_cast<int>(SA_RESETHAND) : 0);
    sigaction(signal, &action, &before[i]);
    // nohup ignores SIGHUP, and profilers use timers. A shell ignores Ctrl-C for commands in the
    // background, to which `kill -INT` can still be sent.
    const bool is_always_taken = signal == SIGTERM || signal == SIGINT || signal == SIGUSR1;
    if (!is_always_taken && before[i].sa_handler != SIG_DFL) sigaction(signal, &before[i], nullptr);
  }
}

StopSignal::~StopSignal() {
  const std::lock_guard lock(mutex);
  // Their request has been served.
  if (answer_ == Answer::kStops && --stoppers == 0) {
    received = 0;
    heeded = false;
  }
  if (--listeners > 0) return;
  for (size_t i = 0; i < std::size(kStopSignals); ++i)
    sigaction(kStopSignals[i], &before[i], nullptr);
}

int StopSignal::requested() const { return received; }

void StopSignal::end_by(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

bool StopSignal::anybody_stops() {
  const std::lock_guard lock(mutex);
  return stoppers > 0;
}

void StopSignal::heed() {
  const std::lock_guard lock(mutex);
  heeded = true;
}

bool StopSignal::is_heeded() {
  const std::lock_guard lock(mutex);
  return heeded;
}

std::string StopSignal::name(int signal) {
  return signal == SIGINT ? "Ctrl-C" : fmt::format("SIG{}", sigabbrev_np(signal));
}

Deadline::Deadline(std::chrono::milliseconds time, std::function<void()> missed) {
  try {
    thread_ = start_thread([time, missed = std::move(missed)](const std::stop_token& stop) {
      if (!stops_within(stop, time)) missed();
    });
  } catch (const Error&) {
    // Running without a deadline is better than not running.
  }
}

Deadline deadline_of_save(int64_t step, int64_t seconds, ProcessGroup& processes) {
  return {std::chrono::seconds(seconds), [step, seconds, transport = processes.transport()] {
            print_error(
                fmt::format("runexp: received a stop signal, but step {} was not saved within {} s "
                            "(task.train.stop_deadline_seconds); earlier checkpoints remain",
                            step, seconds));
            if (transport) transport->abort(1);
            std::_Exit(1);
          }};
}

Watchdog::Watchdog(std::string name, std::chrono::milliseconds last_moment)
    : last_moment_(last_moment), name_(std::move(name)) {
  doing_ = name_ + " waits for the others to join";
  thread_ = start_thread([this](const std::stop_token& stop) { watch(stop); });
}

Watchdog::Attention::Attention(Watchdog* watch, ProcessGroup& processes) : watch_(watch) {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  watch_->processes_ = &processes;
  watch_->name_ = processes.name(processes.rank());
  watch_->doing_ = watch_->name_ + " waits for the others to end";
}

Watchdog::Attention::~Attention() {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  watch_->processes_ = nullptr;
}

void Watchdog::dismiss() {
  const std::lock_guard lock(mutex_);
  dismissed_ = true;
}

void Watchdog::log_in(const std::filesystem::path& run_directory) {
  const std::lock_guard lock(mutex_);
  run_directory_ = run_directory;
}

void Watchdog::note_look(Clock::time_point now) {
  if (now - last_look_ >= WaitDeadline::kSuspended) {
    woken_ = now;
    stopped_ = now - last_look_;
  }
  last_look_ = now;
}

// The report for a signal seen at `noticed`; "" while it is too early.
std::string Watchdog::report(Clock::time_point now, Clock::time_point noticed) {
  if (woken_ != Clock::time_point() && now - woken_ < kResumeGrace)
    return fmt::format("after this process itself, {}, had been stopped for {:.1f} s", name_,
                       stopped_.count());
  if (processes_ == nullptr) return "while " + doing_;
  if (const std::string waits = processes_->stall_probes().stalled(kLongWait); !waits.empty())
    return "while " + waits;
  return now - noticed < last_moment_ ? "" : "while " + processes_->status();
}

void Watchdog::watch(const std::stop_token& stop) {
  std::optional<Clock::time_point> noticed;
  while (!stops_within(stop, WaitDeadline::kPollInterval)) {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    note_look(now);
    const int signal = stop_.requested();
    const bool stops = StopSignal::anybody_stops();
    // Others are not followed by a kill at once.
    const bool ends_soon = signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
    if (signal == 0 || (stops && (!ends_soon || StopSignal::is_heeded()))) continue;
    if (dismissed_) return StopSignal::end_by(signal);
    if (!noticed) noticed = now;
    const std::string text = report(now, *noticed);
    if (text.empty()) continue;
    const std::string line = fmt::format("{} came {}", StopSignal::name(signal), text);
    print_error("runexp: " + line);
    log_failure(run_directory_, line);
    if (!stops) StopSignal::end_by(signal);
    return;
  }
}

}  // namespace tessera
