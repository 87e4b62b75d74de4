// SPDX-License-Identifier: Apache-2.0
#include "tasks/refit/matched_launches.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "core/runtime/executor/launch_type.h"

namespace tessera {
namespace {

constexpr size_t kTypeColumns = 200;  // Of a message.

using Key = std::pair<std::string, std::string>;  // Type and line.

struct ProgramLaunch {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  Key key;
};

// Without waits; nodes of a loop once for each iteration.
std::vector<ProgramLaunch> launches_of(const StepPlan& plan) {
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

// Where the layer of a launch of the program is.
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
    const TracedLaunch& launch = step.launches[i];
    const Key key{launch.type, launch.line};
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

// Of one collective of a step: the nth of its type, among devices with one program.
struct CollectiveKey {
  std::string type;
  int64_t stage = 0, step = 0, number = 0;
  auto operator<=>(const CollectiveKey&) const = default;
};

class Matcher {
 public:
  Matcher(const std::vector<StagePlan>& stages, const Mesh& mesh, const std::string& where)
      : mesh_(mesh), where_(where) {
    for (const StagePlan& stage : stages) {
      std::vector<ProgramLaunch>& program = programs_[stage.stage] = launches_of(*stage.plan);
      for (const ProgramLaunch& launch : program) add_type(launch);
    }
  }

  void add(const TracedStep& step) {
    if (step.device < 0 || step.device >= mesh_.num_devices())
      fail_other(where_, step,
                 fmt::format("the device is not in the mesh {}, which has {}", mesh_.text(),
                             mesh_.num_devices()));
    const int64_t stage = mesh_.stage_of(step.device);
    check_same(step, programs_.at(stage), where_);
    std::map<std::string, int64_t> numbers;
    for (const TracedLaunch& launch : step.launches) {
      MatchedLaunches& matched = matched_[number_of_.at(launch.type)];
      if (is_transfer(*matched.node)) continue;
      if (!is_collective(*matched.node)) {
        matched.seconds.push_back(launch.seconds);
        continue;
      }
      const CollectiveKey key{launch.type, stage, step.step, numbers[launch.type]++};
      const auto [found, added] = collectives_.try_emplace(key, launch.seconds);
      if (!added) found->second = std::min(found->second, launch.seconds);
    }
  }

  std::vector<MatchedLaunches> launches() && {
    for (const auto& [key, seconds] : collectives_)
      matched_[number_of_.at(key.type)].seconds.push_back(seconds);
    std::erase_if(matched_, [](const MatchedLaunches& each) { return each.seconds.empty(); });
    for (MatchedLaunches& each : matched_) std::ranges::sort(each.seconds);
    return std::move(matched_);
  }

 private:
  void add_type(const ProgramLaunch& launch) {
    const std::string& type = launch.key.first;
    if (number_of_.try_emplace(type, matched_.size()).second)
      matched_.push_back({.type = type, .graph = launch.graph, .node = launch.node});
  }

  const Mesh& mesh_;
  const std::string& where_;
  std::map<int64_t, std::vector<ProgramLaunch>> programs_;  // By stage.
  std::map<std::string, size_t> number_of_;                 // By type.
  std::vector<MatchedLaunches> matched_;
  std::map<CollectiveKey, double> collectives_;
};

}  // namespace

double MatchedLaunches::quantile(double part) const {
  CHECK(!seconds.empty(), "no launches of {}", type);
  const auto last = static_cast<double>(seconds.size() - 1);
  return seconds[static_cast<size_t>(std::lround(part * last))];
}

double median_of(std::vector<double> values) {
  CHECK(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::vector<MatchedLaunches> match_launches(const std::vector<TracedStep>& steps,
                                            const std::vector<StagePlan>& stages, const Mesh& mesh,
                                            const std::string& where) {
  Matcher matcher(stages, mesh, where);
  for (const TracedStep& step : steps) matcher.add(step);
  return std::move(matcher).launches();
}

}  // namespace tessera
