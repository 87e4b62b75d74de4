// SPDX-License-Identifier: Apache-2.0
// Records on their way to one tracker. A thread hands them over, so that a tracker that is slow,
// gone or full delays nothing: beyond a number of waiting records, new ones are dropped and
// counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "tasks/task/base_tracker.h"

namespace tessera {

class TrackerQueue {
 public:
  static constexpr size_t kMostWaiting = 10'000;
  TrackerQueue(std::unique_ptr<BaseTracker> tracker, const TrackedRun& run,
               size_t most_waiting = kMostWaiting);
  ~TrackerQueue();                                   // Abandons the tracker unless it has ended.
  TrackerQueue& operator=(TrackerQueue&&) = delete;  // Neither copied nor moved.

  // Returns at once.
  void add(const TrackerRecord& record);
  // Hands over what waits, and then `end`, in the background.
  void begin_end(const TrackerRecord& end);
  // Waits for that until the deadline, and at most a second more for a call that is under way.
  // Returns the number of records that the tracker did not get.
  int64_t finish(std::chrono::steady_clock::time_point deadline);
  // Why the tracker does not get records; "" if it does, or if that was told before.
  std::string take_problem();

 private:
  struct State;
  static void work(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // The thread's too: a call that does not return keeps it.
  std::thread thread_;
};

}  // namespace tessera
