// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/observe/launch_list.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/graph/layer_pieces.h"
#include "core/graph/op.h"
#include "core/graph/text.h"
#include "core/ops/repeat.h"
#include "core/runtime/executor/launch_trace.h"

namespace tessera {
namespace {

std::string types_of(const Graph& graph, const std::vector<ValueId>& values) {
  std::string text;
  for (const ValueId value : values)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", graph.type(value).text_sized());
  return text;
}

// The loops around each body of a graph, the outermost first.
using LoopsOfBodies = std::map<const Graph*, std::vector<const Node*>>;

void find_loops(const Graph& graph, const std::vector<const Node*>& around, LoopsOfBodies* found) {
  (*found)[&graph] = around;
  for (const Node& node : graph.nodes()) {
    std::vector<const Node*> inside = around;
    if (is_repeat(node)) inside.push_back(&node);
    for (const auto& body : node.bodies) find_loops(*body, inside, found);
  }
}

// The path of the launch's layer, with its index for "[]" in a loop over layers.
std::string path_of(const ListedLaunch& launch, const std::vector<const Node*>& loops) {
  constexpr std::string_view kStack = "[]";
  std::string path = launch.node->path;
  int64_t step = launch.iteration - 1;
  for (size_t i = loops.size(); i-- > 0;) {
    const Loop loop(*loops[i]);
    const size_t at = path.rfind(kStack);
    if (loop.axis() == kLayersAxis && at != std::string::npos)
      path.replace(at, kStack.size(),
                   fmt::format("[{}]", loop.first() + loop.iteration(step % loop.count())));
    step /= loop.count();
  }
  return path.empty() ? "the step" : path;
}

}  // namespace

LaunchList::LaunchList(const StepProgram& plan) {
  std::map<std::pair<const Graph*, NodeId>, std::vector<int64_t>> by_node;
  IndexedVector<LaunchId, int64_t> number_of(plan.launches.size());
  for (const LaunchId id : plan.launches.ids()) {
    const Launch& launch = plan.launches[id];
    int64_t number = 0;
    if (launch.kind == LaunchKind::kWait) {
      number = number_of[launch.waits_for];
    } else if (launch.graph == plan.helpers.get()) {
      ++left_out_;
    } else {
      number = static_cast<int64_t>(launches_.size()) + 1;
      launches_.push_back({launch.graph, &launch.graph->node(launch.node), number});
      by_node[{launch.graph, launch.node}].push_back(number);
    }
    number_of[id] = number;
    numbers_[static_cast<size_t>(launch.kind)].push_back(number);
  }
  for (const auto& [node, numbers] : by_node)
    for (size_t i = 0; i < numbers.size(); ++i) {
      ListedLaunch& launch = launches_[static_cast<size_t>(numbers[i] - 1)];
      launch.iteration = static_cast<int64_t>(i) + 1;
      launch.iterations = static_cast<int64_t>(numbers.size());
    }
  LoopsOfBodies loops;
  find_loops(*plan.graph, {}, &loops);
  for (ListedLaunch& launch : launches_) launch.path = path_of(launch, loops[launch.graph]);
}

const ListedLaunch* LaunchList::find(LaunchKind kind, int64_t index) const {
  const std::vector<int64_t>& numbers = numbers_[static_cast<size_t>(kind)];
  CHECK(index < std::ssize(numbers), "launch {} of {} of a kind", index + 1, numbers.size());
  const int64_t number = numbers[static_cast<size_t>(index)];
  return number == 0 ? nullptr : &launch(number);
}

std::string launch_line(const ListedLaunch& launch, size_t launches) {
  std::string text =
      fmt::format("launch {} of {}: {} [{}]", launch.number, launches,
                  launch_name(*launch.node, LaunchKind::kRun), phase_name(launch.node->phase));
  if (launch.iterations > 1)
    text += fmt::format(", time {} of {}", launch.iteration, launch.iterations);
  return text;
}

std::string place_line(const ListedLaunch& launch) {
  const SourceSite& site = launch.node->site;
  return site.known() ? fmt::format("in {}, {}", launch.path, site.text()) : "in " + launch.path;
}

std::string operand_name(const ListedLaunch& launch, size_t input) {
  return fmt::format("{} ({})", input, launch.graph->describe(launch.node->inputs[input]));
}

std::vector<std::string> LaunchList::identity() const {
  std::vector<std::string> lines;
  for (const ListedLaunch& launch : launches_) {
    const Node& node = *launch.node;
    std::string line =
        fmt::format("{} [{}] in {}: ({}) -> ({}) {}", launch_name(node, LaunchKind::kRun),
                    phase_name(node.phase), node.path.empty() ? "the step" : node.path,
                    types_of(*launch.graph, node.inputs), types_of(*launch.graph, node.outputs),
                    node.attributes.text());
    for (const auto& body : node.bodies) line += " body " + graph_hash(*body);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace tessera
