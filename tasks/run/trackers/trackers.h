// SPDX-License-Identifier: Apache-2.0
// The trackers of a run (task.train.trackers), and its notification command (task.train.notify).
// What they get beside the records that the run's log passes on: the configuration, and at the end
// the files with plots.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tasks/task/base_tracker.h"
#include "tasks/task/histogram.h"
#include "tasks/task/hparams.h"

namespace tessera {

// Records on their way to one tracker. A thread hands them over, so that a tracker that is slow,
// gone or full delays nothing: beyond a number of waiting records, new ones are dropped and
// counted.
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

// Error if a tracker's configuration is wrong.
void check_trackers(const TrainHParams& p);

class Trackers {
 public:
  using Warn = std::function<void(std::string_view line)>;

  // `name` of the run in trackers, and its hparams.toml. Starts them; null if there are none.
  static std::unique_ptr<Trackers> start(const TrainHParams& p, const std::string& name,
                                         const std::string& hparams_toml,
                                         const std::filesystem::path& directory, int64_t step,
                                         Warn warn);

  void metrics(int64_t step, const std::string& line);
  void event(int64_t step, std::string_view line, std::string_view name);
  void samples(int64_t step, const std::vector<std::string>& lines,
               const std::map<std::string, std::string>& pages);
  void histogram(int64_t step, const std::string& name, const Bins& bins);
  // Ends the trackers within tracker_wait_seconds. Returns how many records each one lost, if any.
  std::map<std::string, int64_t> finish(int64_t step, std::string_view line, std::string_view name);

 private:
  Trackers(std::filesystem::path directory, int64_t wait_seconds, Warn warn)
      : directory_(std::move(directory)), wait_seconds_(wait_seconds), warn_(std::move(warn)) {}
  void add(TrackerRecord record);
  void warn_of_problems();

  std::filesystem::path directory_;
  int64_t wait_seconds_;
  Warn warn_;
  std::map<std::string, TrackerQueue> queues_;  // By name.
};

}  // namespace tessera
