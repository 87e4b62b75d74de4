// SPDX-License-Identifier: Apache-2.0
#include "tasks/shutdown/stop_signal.h"

#include <csignal>
#include <iterator>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"

namespace tessera {
namespace {

volatile std::sig_atomic_t received = 0;
std::mutex mutex;  // Guards the variables below.
int listeners = 0;
int stoppers = 0;  // Listeners that stop the run.
bool heeded = false;
constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
struct sigaction before[std::size(kSignals)];

extern "C" void on_stop_signal(int signal) { received = signal; }

}  // namespace

StopSignal::StopSignal(Answer answer) : answer_(answer) {
  const std::lock_guard lock(mutex);
  if (answer_ == Answer::kStops) ++stoppers;
  if (++listeners > 1) return;
  received = 0;
  heeded = false;
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    // At a time limit Slurm sends SIGTERM twice: to the job and to its step.
    action.sa_flags = SA_RESTART | (kSignals[i] == SIGINT ? static_cast<int>(SA_RESETHAND) : 0);
    sigaction(kSignals[i], &action, &before[i]);
    // Under nohup the program must survive a closed terminal.
    const bool is_kept = kSignals[i] == SIGHUP && before[i].sa_handler == SIG_IGN;
    if (is_kept) sigaction(SIGHUP, &before[i], nullptr);
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
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before[i], nullptr);
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

const char* StopSignal::name(int signal) {
  if (signal == SIGINT) return "Ctrl-C";
  if (signal == SIGHUP) return "SIGHUP";
  return signal == SIGUSR1 ? "SIGUSR1" : "SIGTERM";
}

Deadline::Deadline(std::chrono::milliseconds time, std::function<void()> missed) {
  try {
    thread_ = start_thread([this, time, missed = std::move(missed)] {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, time, [this] { return met_; })) missed();
    });
  } catch (const Error&) {
    // Running without a deadline is better than not running.
  }
}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    met_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace tessera
