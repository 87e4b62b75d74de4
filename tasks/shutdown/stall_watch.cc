// SPDX-License-Identifier: Apache-2.0
#include "tasks/shutdown/stall_watch.h"

#include <csignal>
#include <cstdio>
#include <utility>

#include <fmt/core.h>

#include "core/base/process.h"
#include "tasks/logging/run_log.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongWait = 500ms;
// For this long after this process was suspended, its waits do not show that others are missing.
constexpr auto kResumeGrace = 2s;

}  // namespace

StallWatch::StallWatch(std::string name, std::chrono::milliseconds last_moment)
    : last_moment_(last_moment), name_(std::move(name)) {
  doing_ = name_ + " waits for the others to join";
  thread_ = start_thread([this] { watch(); });
}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

StallWatch::Attention::Attention(StallWatch* watch, ProcessGroup& processes) : watch_(watch) {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  watch_->processes_ = &processes;
  watch_->name_ = processes.name(processes.rank());
  watch_->doing_ = watch_->name_ + " waits for the others to end";
}

StallWatch::Attention::~Attention() {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  watch_->processes_ = nullptr;
}

void StallWatch::dismiss() {
  const std::lock_guard lock(mutex_);
  dismissed_ = true;
}

void StallWatch::log_in(const std::filesystem::path& run_directory) {
  const std::lock_guard lock(mutex_);
  run_directory_ = run_directory;
}

void StallWatch::note_look(Clock::time_point now) {
  if (now - last_look_ >= WaitDeadline::kSuspended) {
    woken_ = now;
    stopped_ = now - last_look_;
  }
  last_look_ = now;
}

// The report for a signal seen at `noticed`; "" while it is too early.
std::string StallWatch::report(Clock::time_point now, Clock::time_point noticed) {
  if (woken_ != Clock::time_point() && now - woken_ < kResumeGrace)
    return fmt::format("after this process itself, {}, had been stopped for {:.1f} s", name_,
                       stopped_.count());
  if (processes_ == nullptr) return "while " + doing_;
  if (const std::string waits = processes_->stall_probes().stalled(kLongWait); !waits.empty())
    return "while " + waits;
  return now - noticed < last_moment_ ? "" : "while " + processes_->status();
}

void StallWatch::watch() {
  std::unique_lock lock(mutex_);
  std::optional<Clock::time_point> noticed;
  while (!changed_.wait_for(lock, WaitDeadline::kPollInterval, [this] { return ended_; })) {
    const Clock::time_point now = Clock::now();
    note_look(now);
    const int signal = stop_.requested();
    const bool stops = StopSignal::anybody_stops();
    // A signal that is not followed by a kill.
    if (signal == 0 || (stops && (signal == SIGUSR1 || StopSignal::is_heeded()))) continue;
    if (dismissed_) return StopSignal::end_by(signal);
    if (!noticed) noticed = now;
    const std::string text = report(now, *noticed);
    if (text.empty()) continue;
    const std::string line = fmt::format("{} came {}", StopSignal::name(signal), text);
    // Not fmt::print, which throws where standard error is closed.
    std::fputs(fmt::format("runexp: {}\n", line).c_str(), stderr);
    std::fflush(stderr);
    log_failure(run_directory_, line);
    if (!stops) StopSignal::end_by(signal);
    return;
  }
}

}  // namespace tessera
