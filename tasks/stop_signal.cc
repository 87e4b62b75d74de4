// SPDX-License-Identifier: Apache-2.0
#include "tasks/stop_signal.h"

#include <csignal>
#include <mutex>

namespace tessera {
namespace {

volatile std::sig_atomic_t received = 0;
std::mutex mutex;  // Of what follows.
int listeners = 0;
struct sigaction before_terminate, before_interrupt;

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
  sigaction(SIGTERM, &action, &before_terminate);
  sigaction(SIGINT, &action, &before_interrupt);
}

StopSignal::~StopSignal() {
  const std::lock_guard lock(mutex);
  if (--listeners > 0) return;
  sigaction(SIGTERM, &before_terminate, nullptr);
  sigaction(SIGINT, &before_interrupt, nullptr);
}

bool StopSignal::requested() const { return received != 0; }

const char* StopSignal::name() const { return received == SIGINT ? "Ctrl-C" : "SIGTERM"; }

}  // namespace tessera
