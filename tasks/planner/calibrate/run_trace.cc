// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/calibrate/run_trace.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "core/io/json.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "core/runtime/executor/launch_trace.h"
#include "inputs/readers/byte_source.h"
#include "inputs/readers/foreign_format.h"

namespace tessera {
namespace {

constexpr size_t kMostTraceBytes = size_t{256} << 20;  // Largest decompressed trace.
constexpr int64_t kCompute = 1;                        // "tid" of the compute track.

int64_t nanoseconds(const Json& microseconds) {
  return std::llround(microseconds.as_number() * 1000.0);
}

TraceSlice slice_of(const Json& event) {
  const int64_t track = event.at("tid").as_integer();
  TraceSlice slice{
      .device = event.at("pid").as_integer() - 1,
      .track = track == kCompute ? TraceTrackKind::kCompute : TraceTrackKind::kCommunication,
      .name = event.at("name").as_string(),
      .begin_ns = nanoseconds(event.at("ts"))};
  slice.end_ns = slice.begin_ns + nanoseconds(event.at("dur"));
  const Json* const arguments = event.find("args");
  if (arguments == nullptr) return slice;
  slice.is_launch = true;
  slice.line = arguments->at("line").as_string();
  if (const Json* const launch = arguments->find("launch")) slice.launch = launch->as_string();
  return slice;
}

constexpr size_t kTypeColumns = 200;  // Most columns of a type in a message.

using Key = std::pair<std::string, std::string>;  // Type and line.

struct ProgramLaunch {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  Key key;
};

// Lists the launches without waits; nodes of a loop appear once for each iteration.
std::vector<ProgramLaunch> launches_of(const StepProgram& plan) {
  std::map<const Graph*, IndexedVector<NodeId, Key>> known;
  std::vector<ProgramLaunch> launches;
  for (const Launch& launch : plan.launches) {
    if (launch.kind == LaunchKind::kWait) continue;
    const Node& node = launch.graph->node(launch.node);
    const auto [keys, added] = known.try_emplace(launch.graph, launch.graph->nodes().size());
    Key& key = keys->second[launch.node];
    if (key.first.empty()) key = {launch_type(*launch.graph, node), node.site.text()};
    launches.push_back({launch.graph, &node, key});
  }
  return launches;
}

std::string launch_text(const Key& key) {
  const std::string_view type = key.first;
  const bool is_long = type.size() > kTypeColumns;
  return fmt::format("'{}{}'{}", type.substr(0, kTypeColumns), is_long ? "..." : "",
                     key.second.empty() ? "" : " at " + key.second);
}

// The text of a launch with the path of its layer.
std::string place_text(const ProgramLaunch& launch) {
  return fmt::format("{} in {}", launch_text(launch.key),
                     launch.node->path.empty() ? "the step" : launch.node->path);
}

[[noreturn]] void fail_other(const std::string& where, const TracedStep& step,
                             const std::string& difference) {
  fail(
      "{} is the trace of another program: in step {} of device {}, {}; give the configuration of "
      "the traced run (--config=RUN, without --exp and --set), and its --device",
      where, step.step + 1, step.device, difference);
}

// The first launch that the trace has and the program lacks, in the order of the trace; then the
// other way round.
void check_same(const TracedStep& step, const std::vector<ProgramLaunch>& program,
                const std::string& where) {
  std::map<Key, int64_t> left;
  for (const ProgramLaunch& launch : program) ++left[launch.key];
  for (size_t i = 0; i < step.launches.size(); ++i) {
    const Key key{step.launches[i].launch, step.launches[i].line};
    const auto found = left.find(key);
    if (found != left.end() && --found->second >= 0) continue;
    const std::string instead =
        i < program.size() ? ", which has " + place_text(program[i]) + " there" : "";
    fail_other(where, step,
               fmt::format("launch {} of {} is {}, {} the program of {} launches{}", i + 1,
                           step.launches.size(), launch_text(key),
                           found == left.end() ? "not in" : "more often than in", program.size(),
                           instead));
  }
  for (size_t i = 0; i < program.size(); ++i)
    if (left[program[i].key] > 0)
      fail_other(where, step,
                 fmt::format("launch {} of {} of the program is missing: {}", i + 1, program.size(),
                             place_text(program[i])));
}

using Slices = std::vector<const TraceSlice*>;

void sort_by_begin(Slices& slices) {
  std::ranges::stable_sort(slices, {}, [](const TraceSlice* slice) { return slice->begin_ns; });
}

std::vector<double> gaps_of(const Slices& computed) {
  std::vector<double> gaps;
  for (size_t i = 1; i < computed.size(); ++i) {
    const int64_t gap = computed[i]->begin_ns - computed[i - 1]->end_ns;
    gaps.push_back(static_cast<double>(std::max<int64_t>(gap, 0)) * 1e-9);
  }
  return gaps;
}

// Returns the median; `values` must not be empty.
double median_of(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

MeasuredLaunch median_launch(MeasuredLaunch launch, const std::vector<double>& seconds,
                             double gap) {
  // A clock may not see a short launch.
  launch.seconds = std::max(median_of(seconds), 1e-9);
  if (!is_collective(*launch.node)) launch.seconds += gap;
  launch.weight = launch.seconds * static_cast<double>(seconds.size());
  return launch;
}

}  // namespace

std::optional<int64_t> TraceSlice::step() const {
  constexpr std::string_view kPrefix = "step ";
  if (is_launch || !name.starts_with(kPrefix)) return std::nullopt;
  return parse_integer(std::string_view(name).substr(kPrefix.size()));
}

std::vector<TraceSlice> trace_slices(std::string_view trace, const std::string& where) {
  const Json document = parse_json(trace, where);
  std::vector<TraceSlice> slices;
  bool has_launches = false;
  for (const Json& event : document.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    slices.push_back(slice_of(event));
    slices.back().index = slices.size() - 1;
    has_launches = has_launches || slices.back().is_launch;
  }
  if (!has_launches) fail("{} has no launches", where);
  return slices;
}

std::string read_trace(const std::filesystem::path& file) {
  const auto source = decompress_by_name(open_file(file), file);
  std::string text, block(size_t{1} << 18, '\0');
  while (const size_t read = source->read(block.data(), block.size())) {
    text.append(block, 0, read);
    if (text.size() > kMostTraceBytes)
      fail("{} has more than {} MiB, too much to show; it opens in ui.perfetto.dev", file.string(),
           kMostTraceBytes >> 20);
  }
  return text;
}

std::vector<TracedStep> traced_steps(const std::vector<TraceSlice>& slices,
                                     const std::string& where) {
  // A step follows its launches, on each track.
  std::map<std::pair<int64_t, TraceTrackKind>, Slices> open;
  std::map<std::pair<int64_t, int64_t>, TracedStep> steps;  // By step and device.
  std::map<std::pair<int64_t, int64_t>, Slices> launches;
  for (const TraceSlice& slice : slices) {
    Slices& track = open[{slice.device, slice.track}];
    if (slice.is_launch) {
      track.push_back(&slice);
      continue;
    }
    const auto number = slice.step();
    if (!number) continue;
    TracedStep& step = steps[{*number, slice.device}];
    step.device = slice.device;
    step.step = *number;
    step.seconds = std::max(step.seconds, slice.seconds());
    sort_by_begin(track);
    if (slice.track == TraceTrackKind::kCompute) step.gaps = gaps_of(track);
    Slices& all = launches[{*number, slice.device}];
    all.insert(all.end(), track.begin(), track.end());
    track.clear();
  }
  if (steps.empty()) fail("{} has no steps", where);
  std::vector<TracedStep> result;
  for (auto& [key, step] : steps) {
    Slices& all = launches[key];
    sort_by_begin(all);
    for (const TraceSlice* const slice : all) {
      if (slice->is_wait()) continue;
      if (slice->launch.empty())
        fail(
            "{} was written by an older build: its launches have no types; trace some steps again "
            "with --profile=START:N",
            where);
      step.launches.push_back(*slice);
    }
    result.push_back(std::move(step));
  }
  return result;
}

double median_step(const std::vector<TracedStep>& steps) {
  std::vector<double> seconds;
  for (const TracedStep& step : steps) seconds.push_back(step.seconds);
  return median_of(std::move(seconds));
}

std::vector<MeasuredLaunch> measured_launches(const std::vector<TracedStep>& steps,
                                              const std::vector<StagePlan>& stages,
                                              const Mesh& mesh, const std::string& where) {
  std::map<int64_t, std::vector<ProgramLaunch>> programs;  // By stage.
  std::map<std::string, MeasuredLaunch> types;
  for (const StagePlan& stage : stages)
    for (const ProgramLaunch& launch : programs[stage.stage] = launches_of(*stage.plan))
      types.try_emplace(launch.key.first, MeasuredLaunch{launch.graph, launch.node});
  // By type, device, step, and the number of the launch among those of its type. For a collective:
  // the least time on any device of the stage.
  std::map<std::tuple<std::string, int64_t, int64_t, int64_t>, double> measured;
  std::vector<double> gaps = {0.0};
  for (const TracedStep& step : steps) {
    if (step.device < 0 || step.device >= mesh.num_devices())
      fail_other(where, step,
                 fmt::format("the device is not in the mesh {}, which has {}", mesh.text(),
                             mesh.num_devices()));
    const int64_t stage = mesh.stage_of(step.device);
    check_same(step, programs.at(stage), where);
    gaps.insert(gaps.end(), step.gaps.begin(), step.gaps.end());
    std::map<std::string, int64_t> numbers;
    for (const TraceSlice& launch : step.launches) {
      const Node& node = *types.at(launch.launch).node;
      if (is_transfer(node)) continue;
      double& seconds =
          measured
              .try_emplace({launch.launch, is_collective(node) ? -1 - stage : step.device,
                            step.step, numbers[launch.launch]++},
                           launch.seconds())
              .first->second;
      seconds = std::min(seconds, launch.seconds());
    }
  }
  std::map<std::string, std::vector<double>> by_type;
  for (const auto& [key, seconds] : measured) by_type[std::get<0>(key)].push_back(seconds);
  const double gap = median_of(std::move(gaps));
  std::vector<MeasuredLaunch> result;
  for (const auto& [type, seconds] : by_type)
    result.push_back(median_launch(types.at(type), seconds, gap));
  return result;
}

std::vector<MeasuredLaunch> measured_launches(const std::map<std::string, double>& seconds,
                                              const std::vector<StagePlan>& stages,
                                              const std::string& where) {
  std::map<std::string, MeasuredLaunch> types;
  for (const StagePlan& stage : stages)
    for (const ProgramLaunch& launch : launches_of(*stage.plan)) {
      const auto known = seconds.find(launch.key.first);
      if (known == seconds.end()) continue;
      MeasuredLaunch& type =
          types.try_emplace(known->first, launch.graph, launch.node, known->second, 0.0)
              .first->second;
      type.weight += known->second;
    }
  if (types.empty())
    fail("{} has no launch of this program in [launches]; give the recipe that was measured",
         where);
  std::vector<MeasuredLaunch> result;
  for (const auto& [type, launch] : types) result.push_back(launch);
  return result;
}

}  // namespace tessera
