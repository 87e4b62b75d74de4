// SPDX-License-Identifier: Apache-2.0
// Threads that make rows of several lanes ahead of their use, those that are shortest of rows
// first. What is given out does not depend on the threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "inputs/streaming/text_lane.h"

namespace tessera {

class LaneWorkers {
 public:
  // `ahead` rows of a lane at most are held ready.
  LaneWorkers(std::vector<std::unique_ptr<TextLane>> lanes, int64_t threads, int64_t ahead);
  ~LaneWorkers();

  // The next row of a lane; empty at its end. Waits for it, and throws what it would throw.
  const std::vector<uint32_t>& front(size_t lane);
  void pop(size_t lane);
  LanePlace place(size_t lane) const;  // After what was popped.
  void restart();                      // From the beginning.
  void restart(const std::vector<LanePlace>& places);

 private:
  struct Row {
    std::vector<uint32_t> tokens;  // Empty: the end.
    LanePlace after;
    std::exception_ptr error;
  };
  struct Lane {
    std::unique_ptr<TextLane> lane;  // A thread's alone while `busy`.
    std::deque<Row> ready;
    LanePlace given_out;
    bool busy = false;
    bool finished = false;  // By its end or an error: the last of `ready`, which stays.
  };
  void start();
  void stop();
  void work();
  Lane* neediest();

  std::vector<Lane> lanes_;
  const int64_t num_threads_;
  const size_t ahead_;
  std::vector<std::thread> threads_;
  mutable std::mutex mutex_;
  std::condition_variable row_made_, row_taken_;
  bool stopping_ = false;
};

}  // namespace tessera
