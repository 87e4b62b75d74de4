// SPDX-License-Identifier: Apache-2.0
// What launches took in a traced run, as a file (launch_costs.json, docs/formats.md): the measured
// part of a prediction, and what overlapped collectives are scheduled by. Pax calls this
// profile-guided latency estimation. --mode=calibrate --trace writes the file (tasks/refit).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/memory/step_plan.h"
#include "core/runtime/comm/process_group.h"

namespace tessera {

// What limits a launch: arithmetic, memory, or the links.
enum class LaunchWork { kProduct, kKernel, kCollective };
inline constexpr std::array<std::string_view, 3> kLaunchWorkNames = {"product", "kernel",
                                                                     "collective"};
LaunchWork launch_work(const Node& node);

// All launches of one type.
struct MeasuredLaunch {
  std::string type;  // launch_type() (core/runtime/executor/launch_type.h).
  LaunchWork work = LaunchWork::kKernel;
  int64_t count = 0;    // Of measurements.
  double median = 0.0;  // Seconds of one launch,
  double spread = 0.0;  // and between the first and the third quartile.
  double flops = 0.0;   // Of one launch,
  double bytes = 0.0;   // moved in memory; of a collective: sent.
};

// Where the launches were measured.
struct MeasuredRun {
  std::string experiment;     // "c4.Spmd1B"
  std::string device;         // Its description.
  std::string mesh;           // "data=4"
  double step_seconds = 0.0;  // The median of the traced steps,
  double gap = 0.0;           // and from the end of a launch to the begin of the next.
};

class LaunchCosts {
 public:
  // Error if two launches have one type.
  LaunchCosts(MeasuredRun run, std::vector<MeasuredLaunch> launches);
  // Error with the file and the member for what is not a file of this format, or has impossible
  // numbers. `where` names the text in messages.
  static LaunchCosts parse(std::string_view text, const std::string& where);
  std::string json() const;

  const MeasuredRun& run() const { return run_; }
  const std::vector<MeasuredLaunch>& launches() const { return launches_; }

  // Null: not measured.
  const MeasuredLaunch* find(const Graph& graph, const Node& node) const;
  // Of one launch, with the gap before the next: measured or, for a launch of another type,
  // estimated from its FLOPs or bytes at the rate of all measured launches that do the same work.
  double seconds(const Graph& graph, const Node& node) const;
  // Whether launches that do this work were measured: without collectives, costs say nothing about
  // when these should start.
  bool has(LaunchWork work) const;

 private:
  MeasuredRun run_;
  std::vector<MeasuredLaunch> launches_;
  std::unordered_map<std::string, size_t> by_type_;
  // FLOPs per second of products, bytes per second of others; 0: none was measured.
  std::array<double, kLaunchWorkNames.size()> rates_ = {};
};

// For the schedule of overlapped collectives; unset without costs, and with costs of no collective,
// which do not say when one should start. The costs must outlive it.
LaunchSeconds schedule_seconds(const std::optional<LaunchCosts>& costs);

// The file that process 0 reads, or that of its directory: all processes must schedule alike.
// nullopt for an empty path. Error if there is no such file.
std::optional<LaunchCosts> shared_launch_costs(const std::filesystem::path& path,
                                               ProcessGroup& processes);

}  // namespace tessera
