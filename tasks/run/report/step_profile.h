// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes, from a run's trace.json.gz
// (core/runtime/executor/launch_trace.h): a tree of phases, layers and launches, and the launches
// that take most, on the compute track of the first device.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace tessera {

// Times are seconds, of one step on average. The layers of a stack are one node: "x_layers[]".
struct ProfileNode {
  std::string name;
  double seconds = 0.0;
  std::vector<ProfileNode> children;  // In the order of the step.
};

// All launches of a name at one line of layer code.
struct ProfiledLaunch {
  std::string name, line;
  double count = 0.0;
  double seconds = 0.0;
};

// Launches that are a row of program.json (tasks/planner/step_digest.h).
struct LaunchKey {
  std::string place;  // The phase and the layer: "forward.lm.x_layers[].ffn".
  std::string name, line;
  auto operator<=>(const LaunchKey&) const = default;
};

struct StepProfile {
  int64_t device = 0;
  int64_t first_step = 0;  // Number of the first traced step, from 1.
  int64_t steps = 0;
  double step_seconds = 0.0;
  double waiting = 0.0;  // For communication,
  double idle = 0.0;     // and between launches; parts of step_seconds.
  std::vector<ProfileNode> phases;
  std::vector<ProfiledLaunch> launches;    // Longest first.
  std::map<LaunchKey, double> seconds_of;  // Seconds of all launches, by name and layer.
};

// Reads the file. Error if it is damaged, too large to show, or not the trace of a run.
StepProfile read_profile(const std::filesystem::path& file);
// Reads the text of a trace; `where` names it in messages.
StepProfile profile_of(std::string_view trace, const std::string& where);

std::string profile_json(const StepProfile& profile);

}  // namespace tessera
