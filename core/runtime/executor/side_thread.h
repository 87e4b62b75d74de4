// SPDX-License-Identifier: Apache-2.0
// A thread beside another, which does pieces of its work one after another in the order given: the
// communication of a device beside its compute.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera {

class SideThread {
 public:
  // `work(number)` does piece 0, 1, … of a round.
  explicit SideThread(std::function<void(int64_t number)> work);
  ~SideThread();  // Waits for the piece at hand.
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // A new round; all pieces of the last one are done.
  void begin();
  // The next piece may be done from now on.
  void start();
  // Returns when piece `number` and those before it are done; throws what any of them threw, after
  // which the rest of the round is not done.
  void wait(int64_t number);

 private:
  void serve();

  std::function<void(int64_t)> work_;
  std::mutex mutex_;
  std::condition_variable started_changed_, done_changed_;
  int64_t started_ = 0, done_ = 0;
  std::exception_ptr error_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace tessera
