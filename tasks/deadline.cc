// SPDX-License-Identifier: Apache-2.0
#include "tasks/deadline.h"

#include <utility>

namespace tessera {

Deadline::Deadline(std::chrono::milliseconds time, std::function<void()> missed)
    : thread_([this, time, missed = std::move(missed)] {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, time, [this] { return met_; })) missed();
      }) {}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    met_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace tessera
