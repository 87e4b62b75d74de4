// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/report/step_profile.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/hparams/fold_layers.h"
#include "tasks/planner/calibrate/run_trace.h"

namespace tessera {
namespace {

constexpr size_t kMostLaunches = 20;  // Listed.

bool is_phase(std::string_view name) {
  return std::ranges::any_of(std::array{Phase::kForward, Phase::kBackward, Phase::kUpdate},
                             [&](Phase phase) { return phase_name(phase) == name; });
}

// The slices of the first device's compute track; each comes before those within it.
std::vector<TraceSlice> slices_of(std::vector<TraceSlice> slices, int64_t* device) {
  *device = std::ranges::min_element(slices, {}, &TraceSlice::device)->device;
  std::erase_if(slices, [&](const TraceSlice& slice) {
    return slice.device != *device || slice.track != TraceTrackKind::kCompute;
  });
  std::ranges::sort(slices, [](const TraceSlice& a, const TraceSlice& b) {
    return std::tuple(a.begin_ns, -a.end_ns, b.index) < std::tuple(b.begin_ns, -b.end_ns, a.index);
  });
  return slices;
}

ProfileNode& child_of(std::vector<ProfileNode>& nodes, const std::string& name) {
  const auto found = std::ranges::find(nodes, name, &ProfileNode::name);
  return found == nodes.end() ? nodes.emplace_back(ProfileNode{.name = name}) : *found;
}

class ProfileBuilder {
 public:
  void add(const TraceSlice& slice) {
    if (const auto number = slice.step()) return begin_step(*number, slice);
    if (profile_.steps == 0) return;
    while (!open_.empty() && open_.back().second <= slice.begin_ns) open_.pop_back();
    // Names of an ancestry, because adding a node moves its siblings.
    std::vector<ProfileNode>* nodes = &profile_.phases;
    for (const auto& [name, end] : open_) nodes = &child_of(*nodes, name).children;
    const std::string name = without_indices(slice.name);
    child_of(*nodes, name).seconds += slice.seconds();
    if (slice.is_launch) return add_launch(slice, name);
    open_.emplace_back(name, slice.end_ns);
  }

  StepProfile profile() {
    const auto steps = static_cast<double>(std::max<int64_t>(1, profile_.steps));
    profile_.step_seconds /= steps;
    profile_.waiting /= steps;
    profile_.idle = std::max(0.0, profile_.step_seconds - busy_ / steps);
    average(profile_.phases, steps);
    for (auto& [key, seconds] : profile_.seconds_of) seconds /= steps;
    for (auto& [key, launch] : launches_) {
      launch.count /= steps;
      launch.seconds /= steps;
      profile_.launches.push_back(std::move(launch));
    }
    std::ranges::stable_sort(profile_.launches, std::ranges::greater(), &ProfiledLaunch::seconds);
    if (profile_.launches.size() > kMostLaunches) profile_.launches.resize(kMostLaunches);
    return std::move(profile_);
  }

 private:
  void begin_step(int64_t number, const TraceSlice& slice) {
    open_.clear();
    if (profile_.steps++ == 0) profile_.first_step = number + 1;
    profile_.step_seconds += slice.seconds();
  }

  void add_launch(const TraceSlice& slice, const std::string& name) {
    const double time = slice.seconds();
    busy_ += time;
    profile_.seconds_of[{place(), name, slice.line}] += time;
    if (slice.is_wait()) profile_.waiting += time;
    ProfiledLaunch& launch = launches_[{slice.name, slice.line}];
    launch.name = slice.name;
    launch.line = slice.line;
    launch.count += 1.0;
    launch.seconds += time;
  }

  // The names of the ancestors, without the task of a pipeline ("F3"), which is above the phase.
  std::string place() const {
    std::string text;
    for (const auto& [name, end] : open_)
      if (!text.empty() || is_phase(name)) text += (text.empty() ? "" : ".") + name;
    return text;
  }

  static void average(std::vector<ProfileNode>& nodes, double steps) {
    for (ProfileNode& node : nodes) {
      node.seconds /= steps;
      average(node.children, steps);
    }
  }

  StepProfile profile_;
  double busy_ = 0.0;
  std::vector<std::pair<std::string, int64_t>> open_;  // Ancestors: name, end.
  std::map<std::pair<std::string, std::string>, ProfiledLaunch> launches_;
};

std::string tree_json(const ProfileNode& node) {
  return json_object({{"name", node.name},
                      {"seconds", RawJson{fmt::format("{:.6g}", node.seconds)}},
                      {"children", RawJson{json_list(node.children, tree_json)}}});
}

}  // namespace

StepProfile read_profile(const std::filesystem::path& file) {
  return profile_of(read_trace(file), file.string());
}

StepProfile profile_of(std::string_view trace, const std::string& where) {
  int64_t device = 0;
  ProfileBuilder builder;
  for (const TraceSlice& slice : slices_of(trace_slices(trace, where), &device)) builder.add(slice);
  StepProfile profile = builder.profile();
  if (profile.steps == 0) fail("{} has no steps", where);
  profile.device = device;
  return profile;
}

std::string profile_json(const StepProfile& profile) {
  const auto launch_json = [](const ProfiledLaunch& launch) {
    return json_object({{"name", launch.name},
                        {"line", launch.line},
                        {"count", launch.count},
                        {"seconds", launch.seconds}});
  };
  return json_object({{"device", profile.device},
                      {"first_step", profile.first_step},
                      {"steps", profile.steps},
                      {"step_seconds", profile.step_seconds},
                      {"waiting", profile.waiting},
                      {"idle", profile.idle},
                      {"phases", RawJson{json_list(profile.phases, tree_json)}},
                      {"launches", RawJson{json_list(profile.launches, launch_json)}}});
}

}  // namespace tessera
