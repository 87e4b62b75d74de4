// SPDX-License-Identifier: Apache-2.0
// Something must be done by a certain time, or something else is done instead. It stops nothing by
// itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera {

class Deadline {
 public:
  // Calls `missed`, on a thread of its own, unless destroyed within `time`. Where the system has no
  // thread for it, there is no deadline.
  Deadline(std::chrono::milliseconds time, std::function<void()> missed);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool met_ = false;
  std::thread thread_;
};

}  // namespace tessera
