// SPDX-License-Identifier: Apache-2.0
#include "tasks/launch_costs/launch_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/json_list.h"
#include "core/passes/cost.h"
#include "core/runtime/executor/launch_type.h"

namespace tessera {
namespace {

constexpr std::string_view kVersionKey = "tessera_launch_costs";
constexpr int64_t kVersion = 1;
constexpr int64_t kMostBytes = int64_t{64} << 20;  // Of a file.
constexpr double kMostSeconds = 1e6;

size_t index_of(LaunchWork work) { return static_cast<size_t>(work); }

// What takes time in the launch.
double amount_of(LaunchWork work, double flops, double bytes) {
  return work == LaunchWork::kProduct ? flops : bytes;
}

double number_between(const Json& object, std::string_view key, double least, double most) {
  const Json& member = object.at(key);
  const double value = member.as_number();
  if (!std::isfinite(value) || value < least || value > most)
    fail("{} is {}, expected a number from {:g} to {:g}", member.where(), value, least, most);
  return value;
}

LaunchWork work_named(const Json& member) {
  const auto found = std::ranges::find(kLaunchWorkNames, member.as_string());
  if (found == kLaunchWorkNames.end())
    fail("{} is '{}', expected one of {}", member.where(), member.as_string(),
         fmt::join(kLaunchWorkNames, ", "));
  return static_cast<LaunchWork>(found - kLaunchWorkNames.begin());
}

MeasuredLaunch launch_of(const Json& object) {
  constexpr double kLeastSeconds = 1e-12, kMostWork = 1e24, kMostCount = 1e15;
  MeasuredLaunch launch{.type = object.at("launch").as_string(),
                        .work = work_named(object.at("work"))};
  if (launch.type.empty()) fail("{} is empty", object.at("launch").where());
  number_between(object, "count", 1.0, kMostCount);
  launch.count = object.at("count").as_integer();
  launch.median = number_between(object, "median", kLeastSeconds, kMostSeconds);
  launch.spread = number_between(object, "spread", 0.0, kMostSeconds);
  launch.flops = number_between(object, "flops", 0.0, kMostWork);
  launch.bytes = number_between(object, "bytes", 0.0, kMostWork);
  return launch;
}

std::string launch_json(const MeasuredLaunch& launch) {
  return JsonLine()
      .add("launch", std::string_view(launch.type))
      .add("work", kLaunchWorkNames[index_of(launch.work)])
      .add("count", launch.count)
      .add("median", launch.median)
      .add("spread", launch.spread)
      .add("flops", launch.flops)
      .add("bytes", launch.bytes)
      .text();
}

}  // namespace

LaunchWork launch_work(const Node& node) {
  if (node.op->op_class == OpClass::kCollective) return LaunchWork::kCollective;
  return node.op->op_class == OpClass::kContraction ? LaunchWork::kProduct : LaunchWork::kKernel;
}

LaunchCosts::LaunchCosts(MeasuredRun run, std::vector<MeasuredLaunch> launches)
    : run_(std::move(run)), launches_(std::move(launches)) {
  std::array<double, kLaunchWorkNames.size()> amounts = {}, seconds = {};
  for (size_t i = 0; i < launches_.size(); ++i) {
    const MeasuredLaunch& launch = launches_[i];
    if (!by_type_.emplace(launch.type, i).second) fail("two costs of the launch '{}'", launch.type);
    const auto count = static_cast<double>(launch.count);
    amounts[index_of(launch.work)] += count * amount_of(launch.work, launch.flops, launch.bytes);
    seconds[index_of(launch.work)] += count * launch.median;
  }
  for (size_t i = 0; i < rates_.size(); ++i)
    if (seconds[i] > 0.0) rates_[i] = amounts[i] / seconds[i];
}

LaunchCosts LaunchCosts::parse(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  const Json* const version = json.find(kVersionKey);
  if (version == nullptr)
    fail("{} has no '{}': it is not a file that --mode=calibrate --trace writes", where,
         kVersionKey);
  if (version->as_integer() != kVersion)
    fail("{} is {}, expected {}: measure again with this build", version->where(),
         version->as_integer(), kVersion);
  MeasuredRun run{.experiment = json.at("experiment").as_string(),
                  .device = json.at("device").as_string(),
                  .mesh = json.at("mesh").as_string(),
                  .step_seconds = number_between(json, "step_seconds", 0.0, kMostSeconds),
                  .gap = number_between(json, "gap", 0.0, kMostSeconds)};
  std::vector<MeasuredLaunch> launches;
  for (const Json& launch : json.at("launches").as_array()) launches.push_back(launch_of(launch));
  if (launches.empty()) fail("{} has no launches", where);
  const ErrorPrefix prefix(where);
  return {std::move(run), std::move(launches)};
}

std::string LaunchCosts::json() const {
  return JsonLine()
             .add(kVersionKey, kVersion)
             .add("experiment", std::string_view(run_.experiment))
             .add("device", std::string_view(run_.device))
             .add("mesh", std::string_view(run_.mesh))
             .add("step_seconds", run_.step_seconds)
             .add("gap", run_.gap)
             .add_raw("launches", json_list(launches_, launch_json, ",\n"))
             .text() +
         "\n";
}

const MeasuredLaunch* LaunchCosts::find(const Graph& graph, const Node& node) const {
  const auto found = by_type_.find(launch_type(graph, node));
  return found == by_type_.end() ? nullptr : &launches_[found->second];
}

double LaunchCosts::seconds(const Graph& graph, const Node& node) const {
  if (const MeasuredLaunch* const measured = find(graph, node)) return measured->median + run_.gap;
  const LaunchWork work = launch_work(node);
  const double rate = rates_[index_of(work)];
  if (rate <= 0.0) return run_.gap;
  const bool sends = work == LaunchWork::kCollective;
  const double bytes =
      sends ? static_cast<double>(sent_bytes(graph, node)) : node_bytes(graph, node);
  return amount_of(work, node_flops(graph, node), bytes) / rate + run_.gap;
}

bool LaunchCosts::has(LaunchWork work) const {
  return std::ranges::any_of(launches_,
                             [&](const MeasuredLaunch& launch) { return launch.work == work; });
}

LaunchSeconds schedule_seconds(const std::optional<LaunchCosts>& costs) {
  if (!costs || !costs->has(LaunchWork::kCollective)) return {};
  return [&costs = *costs](const Graph& graph, const Node& node) {
    return costs.seconds(graph, node);
  };
}

std::optional<LaunchCosts> shared_launch_costs(const std::filesystem::path& path,
                                               ProcessGroup& processes) {
  if (path.empty()) return std::nullopt;
  const auto text = [&] {
    const std::filesystem::path file =
        std::filesystem::is_directory(path) ? path / "launch_costs.json" : path;
    if (!std::filesystem::is_regular_file(file))
      fail("--launch_costs={}: {} is not a file; runexp --mode=calibrate --trace=RUN writes one",
           path.string(), file.string());
    return read_file(file, kMostBytes);
  };
  return LaunchCosts::parse(
      processes.broadcast(processes.is_first() ? text() : "", "the file of launch costs"),
      path.string());
}

}  // namespace tessera
