// SPDX-License-Identifier: Apache-2.0
#include "tasks/modes/deadline.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/start_thread.h"

namespace tessera {

Deadline::Deadline(std::chrono::milliseconds time, std::function<void()> missed) {
  try {
    thread_ = start_thread([this, time, missed = std::move(missed)] {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, time, [this] { return met_; })) missed();
    });
  } catch (const Error&) {
    // What is to be done in time is worth more than that it ends in time.
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
