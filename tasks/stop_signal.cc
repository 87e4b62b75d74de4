// SPDX-License-Identifier: Apache-2.0
#include "tasks/stop_signal.h"

#include <csignal>
#include <iterator>
#include <mutex>

namespace tessera {
namespace {

volatile std::sig_atomic_t received = 0;
std::mutex mutex;  // Of what follows.
int listeners = 0;
constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
struct sigaction before[std::size(kSignals)];

extern "C" void on_stop_signal(int signal) { received = signal; }

}  // namespace

StopSignal::StopSignal() {
  const std::lock_guard lock(mutex);
  if (++listeners > 1) return;
  received = 0;
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &action, &before[i]);
    // nohup: the terminal may go, and the program stays.
    const bool is_kept = kSignals[i] == SIGHUP && before[i].sa_handler == SIG_IGN;
    if (is_kept) sigaction(SIGHUP, &before[i], nullptr);
  }
}

StopSignal::~StopSignal() {
  const std::lock_guard lock(mutex);
  if (--listeners > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

int StopSignal::requested() const { return received; }

const char* StopSignal::name(int signal) {
  if (signal == SIGINT) return "Ctrl-C";
  if (signal == SIGHUP) return "SIGHUP";
  return signal == SIGUSR1 ? "SIGUSR1" : "SIGTERM";
}

}  // namespace tessera
