// SPDX-License-Identifier: Apache-2.0
// One persistent thread for each device of a process. A single device works on the caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tessera {

class DeviceThreads {
 public:
  // After an error the others have `grace` to come back.
  DeviceThreads(int64_t devices, std::chrono::milliseconds grace);
  ~DeviceThreads();

  // work(device) on each thread; returns when all have. The first error in time is handed to
  // `on_error` at once, so that it may wake the others, and thrown here in the end. A thread that
  // does not come back within the grace is given up: is_lost() from then on.
  void run(const std::function<void(int64_t device)>& work,
           const std::function<void(const std::string& reason)>& on_error);

  // Whether a thread was given up: what it works on must outlive it.
  bool is_lost() const;

 private:
  struct Shared;
  void end_threads();

  std::chrono::milliseconds grace_;
  std::shared_ptr<Shared> shared_;  // With the threads, which may outlive this.
};

}  // namespace tessera
