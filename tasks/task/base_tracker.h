// SPDX-License-Identifier: Apache-2.0
// Trackers: where a run's metrics go besides its directory, such as the server of another tool. A
// plugin derives from BaseTracker, registers the class with
//   const TemplateRegistrar<BaseTracker, MyTracker> kRegister;
// and a run names it in task.train.trackers. Training never waits for a tracker
// (tasks/run/trackers/trackers.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/hparams/template.h"

namespace tessera {

struct TrackedRun {
  std::string tracker;  // Its name in task.train.trackers.
  std::string id;       // A resumed run keeps it.
  std::string name;     // "quickstart.SourceLm/my_run": experiment and directory.
  std::filesystem::path directory;
  int64_t step = 0;  // Where a resumed run continues; 0 of a new one.
  std::vector<std::string> tags;
  std::map<std::string, std::string> config;  // hparams.toml, by path.

  // A file that the tracker keeps in the run's directory.
  std::filesystem::path file(const std::string& suffix) const {
    return directory / "trackers" / (tracker + "." + suffix);
  }
};

struct TrackerRecord {
  enum class Kind { kMetrics, kEvent, kSamples, kHistogram, kFile };
  Kind kind = Kind::kMetrics;
  int64_t step = 0;
  int64_t milliseconds = 0;  // Since 1970, when it was recorded.
  // JSON objects, one per line: the line of metrics.jsonl; of others with a member "record".
  std::string lines;
  std::string name;  // An event's, a histogram's or a file's (within the run's directory).
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> texts;  // kSamples: Markdown by name.
};

// What no retry can repair: a refused password, a command that does not exist.
class TrackerRefused : public Error {
 public:
  using Error::Error;
};

// All calls come from one thread of the tracker's own; constructors only check the configuration.
// A call that throws is repeated later, unless it throws TrackerRefused, which ends the tracker.
class BaseTracker {
 public:
  virtual ~BaseTracker() = default;
  virtual void start(const TrackedRun& run) = 0;
  virtual void write(const std::vector<TrackerRecord>& records) = 0;
  // `end` is the event `done`, `failed` or `preempt`.
  virtual void finish(const TrackerRecord& end) = 0;

  // The run does not wait any longer: calls should return soon. From any thread.
  void abandon() { is_abandoned_ = true; }
  bool is_abandoned() const { return is_abandoned_; }

 private:
  std::atomic<bool> is_abandoned_ = false;
};

}  // namespace tessera
