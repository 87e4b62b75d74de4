// SPDX-License-Identifier: Apache-2.0
// Sees each launch of one step on one device: hashes what it reads and writes, and records that or
// compares it with the other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/runtime/executor/inspected_device.h"
#include "tasks/replay/array_difference.h"
#include "tasks/replay/other_side.h"
#include "tasks/replay/recording.h"
#include "tasks/run/observe/launch_list.h"

namespace tessera {

// What each launch reads in a comparison.
enum class LaunchInputs {
  kOwn,    // What the launches before it have written.
  kOther,  // What it read on the other side: each launch is compared on its own.
};

struct OutputDifference {
  size_t output = 0;                      // Number of the output of the launch.
  std::optional<ArrayDifference> values;  // Nullopt: the other side has only hashes.
};

// A launch with an output that differs.
struct LaunchDifference {
  int64_t device = 0;
  int64_t launch = 0;          // ListedLaunch::number.
  std::vector<size_t> inputs;  // Inputs whose bits differ.
  std::vector<OutputDifference> outputs;
};

// The differences that all devices have found.
class Comparison {
 public:
  void add_equal();
  void add(LaunchDifference difference);

  int64_t compared() const { return compared_; }
  // In the order in which they were found: what a launch reads was written by one before it.
  std::vector<LaunchDifference> differences() const;

 private:
  mutable std::mutex mutex_;
  int64_t compared_ = 0;
  std::vector<LaunchDifference> differences_;
};

// Who receives the launches of a step. The pointers must outlive the step; null: not asked for.
struct LaunchSinks {
  RecordingWriter* writer = nullptr;
  RecordedValues values = RecordedValues::kNone;
  OtherSide* other = nullptr;
  Comparison* comparison = nullptr;
  ValueSums* sums = nullptr;
  double tolerance = 0;
  LaunchInputs inputs = LaunchInputs::kOwn;
};

class LaunchObservation {
 public:
  // `device` is its number in the mesh.
  explicit LaunchObservation(int64_t device) : device_(device) {}

  LaunchInspector inspector();  // Refers to this.
  // Call it before the step. The list outlives it.
  void begin(const LaunchList& list, const LaunchSinks& sinks);

 private:
  // A launch between `before` and `after`.
  struct Open {
    LaunchRecord record;
    std::optional<LaunchRecord> other;
    std::vector<size_t> unequal_inputs;
    std::vector<DeviceAddress> outputs;
  };

  void before(const InspectedLaunch& launch);
  void after(const InspectedLaunch& launch);
  void take_other(const ListedLaunch& listed, const InspectedLaunch& launch, Open& open);
  void compare(const ListedLaunch& listed, Open& open, const RecordedArrays& theirs,
               const std::vector<std::vector<std::byte>>& outputs) const;

  int64_t device_;
  const LaunchList* list_ = nullptr;
  LaunchSinks sinks_;
  std::map<int64_t, Open> open_;  // By number; several if collectives run beside launches.
};

}  // namespace tessera
