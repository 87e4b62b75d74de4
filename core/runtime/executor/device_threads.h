// SPDX-License-Identifier: Apache-2.0
// One persistent thread for each device of a process. A single device uses the caller's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace tessera {

class DeviceThreads {
 public:
  // `grace` is the time in which the other threads have to return after an error.
  DeviceThreads(int64_t devices, std::chrono::milliseconds grace);
  ~DeviceThreads();

  // Calls work(device) on each thread and returns when all have returned. The first error in time
  // is passed to `on_error` at once, so that it can wake the other threads, and then thrown. A
  // thread that does not return within the grace is given up: is_lost() is true from then on.
  void run(const std::function<void(int64_t device)>& work,
           const std::function<void(const std::string& reason)>& on_error);

  // Returns whether a thread was given up. The objects it uses must outlive it.
  bool is_lost() const;

 private:
  struct Shared;
  void end_threads();

  std::chrono::milliseconds grace_;
  std::shared_ptr<Shared> shared_;  // Shared with the threads, which may outlive this object.
};

}  // namespace tessera
