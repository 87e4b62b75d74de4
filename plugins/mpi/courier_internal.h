// SPDX-License-Identifier: Apache-2.0
// The one thread of a process that makes MPI calls. Others hand it messages and wait for them, so
// that any MPI library will do, and a transfer goes on while all other threads compute.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tessera::mpi {

// A message handed over. What the courier and the waiting thread share is guarded by `mutex`.
struct Parcel {
  enum class Direction { kSend, kReceive };
  Direction direction = Direction::kSend;
  int peer = 0;
  uint64_t tag = 0;
  std::byte* data = nullptr;  // Only read if sent.
  size_t size = 0;

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::string error;  // Why it will never be done; or empty.
};

class Courier {
 public:
  Courier();   // Returns when all processes have joined.
  ~Courier();  // Returns when all processes have come to theirs, or ends this one.
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  int rank() const { return rank_; }
  const std::vector<std::string>& hosts() const { return hosts_; }  // By rank.

  void post(const std::shared_ptr<Parcel>& parcel);
  // From when this returns the courier touches no memory of any parcel.
  void give_up(const std::string& reason);
  [[noreturn]] void abort(int exit_code);

 private:
  struct State;  // What only the courier's thread touches.
  void work();
  void deliver(State& state);
  bool rest(int idle_rounds, bool expects_something);

  int rank_ = 0;
  std::vector<std::string> hosts_;

  std::mutex mutex_;
  std::condition_variable wake_;     // The courier.
  std::condition_variable changed_;  // Those who wait for it.
  std::deque<std::shared_ptr<Parcel>> posted_;
  std::string broken_;
  bool ready_ = false;
  bool stopped_ = false;  // It has taken note of `broken_`.
  bool closing_ = false;
  bool finished_ = false;
  int abort_code_ = -1;
  std::thread thread_;
};

}  // namespace tessera::mpi
