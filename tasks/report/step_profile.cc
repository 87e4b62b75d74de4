// SPDX-License-Identifier: Apache-2.0
#include "tasks/report/step_profile.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "inputs/readers/byte_source.h"
#include "tasks/plan/text.h"

namespace tessera {
namespace {

constexpr size_t kMostBytes = size_t{256} << 20;  // Of a trace, decompressed.
constexpr size_t kMostLaunches = 20;              // Listed.
constexpr int64_t kCompute = 1;                   // "tid" of the compute track.

// A slice of the trace, in nanoseconds.
struct Slice {
  std::string name, line;
  int64_t begin = 0, end = 0;
  size_t index = 0;  // In the file, where a slice follows those within it.
  bool is_launch = false;
};

int64_t nanoseconds(const Json& microseconds) {
  return std::llround(microseconds.as_number() * 1000.0);
}

double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// The number of "step 3"; nullopt for any other name.
std::optional<int64_t> step_number(const Slice& slice) {
  constexpr std::string_view kPrefix = "step ";
  if (slice.is_launch || !slice.name.starts_with(kPrefix)) return std::nullopt;
  int64_t number = 0;
  const char* const end = slice.name.data() + slice.name.size();
  const auto [at, error] = std::from_chars(slice.name.data() + kPrefix.size(), end, number);
  if (error != std::errc() || at != end) return std::nullopt;
  return number;
}

bool is_phase(std::string_view name) {
  return std::ranges::any_of(std::array{Phase::kForward, Phase::kBackward, Phase::kUpdate},
                             [&](Phase phase) { return phase_name(phase) == name; });
}

// The slices of the first device's compute track; each comes before those within it.
std::vector<Slice> slices_of(const Json& trace, int64_t* device) {
  const JsonArray& events = trace.at("traceEvents").as_array();
  int64_t process = std::numeric_limits<int64_t>::max();
  for (const Json& event : events)
    if (event.at("ph").as_string() == "X")
      process = std::min(process, event.at("pid").as_integer());
  std::vector<Slice> slices;
  for (const Json& event : events) {
    if (event.at("ph").as_string() != "X" || event.at("pid").as_integer() != process ||
        event.at("tid").as_integer() != kCompute)
      continue;
    Slice slice{.name = event.at("name").as_string(), .begin = nanoseconds(event.at("ts"))};
    slice.end = slice.begin + nanoseconds(event.at("dur"));
    slice.index = slices.size();
    if (const Json* arguments = event.find("args")) {
      slice.is_launch = true;
      slice.line = arguments->at("line").as_string();
    }
    slices.push_back(std::move(slice));
  }
  if (slices.empty()) fail("{} has no launches", trace.where());
  std::ranges::sort(slices, [](const Slice& a, const Slice& b) {
    return std::tuple(a.begin, -a.end, b.index) < std::tuple(b.begin, -b.end, a.index);
  });
  *device = process - 1;
  return slices;
}

ProfileNode& child_of(std::vector<ProfileNode>& nodes, const std::string& name) {
  const auto found = std::ranges::find(nodes, name, &ProfileNode::name);
  return found == nodes.end() ? nodes.emplace_back(ProfileNode{.name = name}) : *found;
}

class ProfileBuilder {
 public:
  void add(const Slice& slice) {
    if (const auto number = step_number(slice)) return begin_step(*number, slice);
    if (profile_.steps == 0) return;
    while (!open_.empty() && open_.back().second <= slice.begin) open_.pop_back();
    // Names of an ancestry, because adding a node moves its siblings.
    std::vector<ProfileNode>* nodes = &profile_.phases;
    for (const auto& [name, end] : open_) nodes = &child_of(*nodes, name).children;
    const std::string name = without_indices(slice.name);
    child_of(*nodes, name).seconds += seconds(slice.end - slice.begin);
    if (slice.is_launch) return add_launch(slice, name);
    open_.emplace_back(name, slice.end);
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
  void begin_step(int64_t number, const Slice& slice) {
    open_.clear();
    if (profile_.steps++ == 0) profile_.first_step = number + 1;
    profile_.step_seconds += seconds(slice.end - slice.begin);
  }

  void add_launch(const Slice& slice, const std::string& name) {
    const double time = seconds(slice.end - slice.begin);
    busy_ += time;
    profile_.seconds_of[{place(), name, slice.line}] += time;
    if (slice.name.starts_with("wait for ")) profile_.waiting += time;
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

std::string decompressed(const std::filesystem::path& file) {
  const auto source = decompress_gzip(open_file(file));
  std::string text, block(size_t{1} << 18, '\0');
  while (const size_t read = source->read(block.data(), block.size())) {
    text.append(block, 0, read);
    if (text.size() > kMostBytes)
      fail("{} has more than {} MiB, too much to show; it opens in ui.perfetto.dev", file.string(),
           kMostBytes >> 20);
  }
  return text;
}

std::string tree_json(const ProfileNode& node) {
  std::vector<std::string> children;
  for (const ProfileNode& child : node.children) children.push_back(tree_json(child));
  return JsonLine()
      .add("name", std::string_view(node.name))
      .add_raw("seconds", fmt::format("{:.6g}", node.seconds))
      .add_raw("children", fmt::format("[{}]", fmt::join(children, ",")))
      .text();
}

}  // namespace

StepProfile read_profile(const std::filesystem::path& file) {
  return profile_of(decompressed(file), file.string());
}

StepProfile profile_of(std::string_view trace, const std::string& where) {
  int64_t device = 0;
  ProfileBuilder builder;
  for (const Slice& slice : slices_of(parse_json(trace, where), &device)) builder.add(slice);
  StepProfile profile = builder.profile();
  if (profile.steps == 0) fail("{} has no steps", where);
  profile.device = device;
  return profile;
}

std::string profile_json(const StepProfile& profile) {
  std::vector<std::string> phases, launches;
  for (const ProfileNode& phase : profile.phases) phases.push_back(tree_json(phase));
  for (const ProfiledLaunch& launch : profile.launches)
    launches.push_back(JsonLine()
                           .add("name", std::string_view(launch.name))
                           .add("line", std::string_view(launch.line))
                           .add("count", launch.count)
                           .add("seconds", launch.seconds)
                           .text());
  return JsonLine()
      .add("device", profile.device)
      .add("first_step", profile.first_step)
      .add("steps", profile.steps)
      .add("step_seconds", profile.step_seconds)
      .add("waiting", profile.waiting)
      .add("idle", profile.idle)
      .add_raw("phases", fmt::format("[{}]", fmt::join(phases, ",")))
      .add_raw("launches", fmt::format("[{}]", fmt::join(launches, ",")))
      .text();
}

}  // namespace tessera
