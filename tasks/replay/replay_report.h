// SPDX-License-Identifier: Apache-2.0
// The results of a replayed step as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tasks/replay/launch_comparison.h"
#include "tasks/replay/recording.h"
#include "tasks/run/observe/launch_list.h"

namespace tessera {

struct StepNumbers {
  double loss = 0, grad_norm = 0;
};

// The result of a comparison of launches.
struct ComparedLaunches {
  std::vector<const LaunchList*> lists;       // By device.
  int64_t compared = 0;                       // On all devices together.
  std::vector<LaunchDifference> differences;  // No launch depends on one behind it.
  double tolerance = 0;
  LaunchInputs inputs = LaunchInputs::kOwn;
  int64_t trained_steps = 0;  // Steps between the checkpoint and the replayed one.
};

// Which launch differs first, how, and how the difference spreads; or that none differs.
std::string comparison_text(const ComparedLaunches& launches);

// A table of loss and gradient norm here, on the other side, and in metrics.jsonl.
std::string numbers_text(const StepNumbers& here, const std::optional<StepNumbers>& there,
                         const std::optional<StepNumbers>& recorded);

// Whether they are equal: all bits, or with a tolerance |a - b| <= tolerance * max(|a|, |b|).
bool same_numbers(const StepNumbers& a, const StepNumbers& b, double tolerance);

// Describes in one line how two programs differ; "" if they do not.
std::string program_difference(const RecordingHeader& here, const RecordingHeader& there);

}  // namespace tessera
