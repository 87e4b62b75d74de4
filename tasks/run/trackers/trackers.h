// SPDX-License-Identifier: Apache-2.0
// The trackers of a run (task.train.trackers), and its notification command (task.train.notify).
// What they get beside the records that the run's log passes on: the configuration, and at the end
// the files with plots.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/run/trackers/tracker_queue.h"
#include "tasks/task/histogram.h"
#include "tasks/task/hparams.h"

namespace tessera {

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
