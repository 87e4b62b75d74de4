// SPDX-License-Identifier: Apache-2.0
#include "tasks/search/layer_stream.h"

#include <algorithm>
#include <limits>

#include "core/ops/pipeline.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "core/passes/memory/step_plan.h"
#include "tasks/plan/roofline.h"

namespace tessera {

// Launches that do not count take no time, and their results are there from the start.
LayerStream::Launch LayerStream::launch_of(const Graph& graph, const Node& node,
                                           Counted counted) const {
  using enum Launch::Kind;
  if (runs_bodies(node)) {
    double seconds = 0.0;
    for (const auto& [body, runs] : run_bodies(node))
      seconds += static_cast<double>(runs) * kernel_seconds(*body, counted);
    return {&node, kKernel, seconds};
  }
  if (view_offset(graph, node)) return {&node, kView};
  const bool moves = node.phase == Phase::kUpdate ||
                     (!node.outputs.empty() && origins_.is_early(graph, node.outputs[0]));
  if (moves || (counted == Counted::kCommon && !origins_.is_common(graph, node))) return {&node};
  return {&node, is_collective(node) ? kCollective : kKernel,
          launch_cost(graph, node, mesh_, hardware_).seconds};
}

double LayerStream::kernel_seconds(const Graph& graph, Counted counted) const {
  double seconds = 0.0;
  for (const Node& node : graph.nodes()) {
    const Launch launch = launch_of(graph, node, counted);
    if (launch.kind == Launch::Kind::kKernel) seconds += launch.seconds;
  }
  return seconds;
}

double LayerStream::seconds(const Node& repeat, Counted counted) {
  const Loop loop(repeat);
  const Graph& body = loop.body();
  std::vector<Launch> launches;
  for (const Node& node : body.nodes()) launches.push_back(launch_of(body, node, counted));
  // When each value is there. What the loop did not compute was there at any time before, so that
  // a collective of it may have run before the loop too.
  constexpr double kBefore = -std::numeric_limits<double>::infinity();
  IndexedVector<ValueId, double> ready(body.values().size(), kBefore);
  std::vector<double> carried(loop.carries(), kBefore);
  double now = 0.0;  // Of the stream of kernels.
  for (int64_t iteration = 0; iteration < loop.count(); ++iteration) {
    for (size_t i = 0; i < loop.carries(); ++i) ready[loop.carry_in(i)] = carried[i];
    for (const Launch& launch : launches) {
      double begin = kBefore;
      if (launch.kind != Launch::Kind::kNothing)
        for (const ValueId value : launch.node->inputs) begin = std::max(begin, ready[value]);
      double end = begin + launch.seconds;
      if (launch.kind == Launch::Kind::kKernel) end = now = std::max(begin, now) + launch.seconds;
      for (const ValueId value : launch.node->outputs) ready[value] = end;
    }
    for (size_t i = 0; i < loop.carries(); ++i) carried[i] = ready[loop.carry_out(i)];
  }
  return now;
}

}  // namespace tessera
