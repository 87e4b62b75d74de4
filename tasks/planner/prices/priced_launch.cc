// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/prices/priced_launch.h"

#include <algorithm>

#include "core/compile/cost.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/launch_trace.h"
#include "tasks/planner/prices/roofline.h"

namespace tessera {
namespace {

// nullopt: no launch of the type was measured.
std::optional<double> measured_seconds(const Graph& graph, const Node& node,
                                       const Hardware& hardware) {
  if (hardware.launches.empty()) return std::nullopt;
  const auto found = hardware.launches.find(launch_type(graph, node));
  return found == hardware.launches.end() ? std::nullopt : std::optional(found->second);
}

PricedLaunch priced(const Launch& launch, const Mesh& mesh, const Hardware& hardware) {
  const Node& node = launch.graph->node(launch.node);
  PricedLaunch result{.name = launch_name(node, LaunchKind::kRun),
                      .path = node.path,
                      .source = node.site.text(),
                      .phase = node.phase,
                      .op = node.op,
                      .cost = launch_cost(*launch.graph, node, mesh, hardware),
                      .count = 0};
  if (is_model_product(node)) result.model_flops = result.cost.flops;
  if (result.model_flops > 0.0)
    result.ideal = result.model_flops / product_peak(*launch.graph, node, hardware);
  result.crosses_slices = is_collective(node) && crosses_slices(node, mesh);
  result.is_recomputed = node.remat_clone;
  if (const auto measured = measured_seconds(*launch.graph, node, hardware)) {
    result.is_measured = true;
    result.cost.seconds = *measured;
    result.cost.copies = std::min(result.cost.copies, result.cost.seconds);
  }
  return result;
}

}  // namespace

LaunchSeconds schedule_seconds(const std::optional<Hardware>& costs, const Mesh& mesh) {
  const auto is_of_collective = [](const auto& launch) {
    return launch.first.find(" over ") != std::string::npos;
  };
  if (!costs || std::ranges::none_of(costs->launches, is_of_collective)) return {};
  return [costs = *costs, &mesh](const Graph& graph, const Node& node) {
    const auto measured = measured_seconds(graph, node, costs);
    return measured ? *measured : launch_cost(graph, node, mesh, costs).seconds;
  };
}

size_t LaunchPrices::price_of(const Launch& launch) {
  if (launch.graph != last_graph_) {
    last_graph_ = launch.graph;
    last_ = &known_.try_emplace(launch.graph, launch.graph->nodes().size(), -1).first->second;
  }
  int64_t& known = (*last_)[launch.node];
  if (known < 0) {
    known = static_cast<int64_t>(prices_.size());
    prices_.push_back(priced(launch, mesh_, hardware_));
  }
  return static_cast<size_t>(known);
}

}  // namespace tessera
