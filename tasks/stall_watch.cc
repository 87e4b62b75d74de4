// SPDX-License-Identifier: Apache-2.0
#include "tasks/stall_watch.h"

#include <cstdio>

#include <fmt/core.h>

#include "core/base/start_thread.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;

// Open MPI sends SIGTERM a second after a death, and kills a second after that.
constexpr auto kLook = 100ms;
constexpr auto kLongWait = 500ms;

}  // namespace

StallWatch::StallWatch(const StopSignal& stop, const Processes& processes, const Fabric* fabric)
    : stop_(stop), processes_(processes), fabric_(fabric) {
  if (processes_.size() > 1) thread_ = start_thread([this] { watch(); });
}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StallWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [this] { return ended_; })) {
    if (stop_.requested() == 0) continue;
    std::string waits = fabric_ != nullptr ? fabric_->stalled(kLongWait) : "";
    if (waits.empty()) waits = processes_.stalled(kLongWait);
    if (waits.empty()) continue;
    // Not fmt::print, which throws where standard error is closed.
    std::fputs(fmt::format("runexp: {} came while {}\n", StopSignal::name(stop_.requested()), waits)
                   .c_str(),
               stderr);
    std::fflush(stderr);
    return;
  }
}

}  // namespace tessera
