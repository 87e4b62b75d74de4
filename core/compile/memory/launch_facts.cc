// SPDX-License-Identifier: Apache-2.0
#include "core/compile/memory/launch_facts.h"

#include <map>
#include <optional>

#include "core/compile/schedule/accumulate.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"

namespace tessera {

LaunchFacts::LaunchFacts(const FlatProgram& program, const std::vector<std::string>& transfers)
    : program_(program) {
  std::map<const Graph*, NodeFlags> sums;
  IndexedVector<FlatNodeId, bool> is_known(program.nodes.size()), is_sum(program.nodes.size());
  for (const FlatLaunch& launch : program.launches) {
    if (is_known[launch.flat_node]) continue;
    is_known[launch.flat_node] = true;
    const auto [found, is_new] = sums.try_emplace(launch.graph);
    if (is_new) found->second = sums_of_collectives(*launch.graph);
    is_sum[launch.flat_node] = found->second[launch.node];
  }
  for (const FlatNodeId id : program.nodes.ids()) {
    const Node* const node = program.nodes[id];
    const OpClass kind = node->op->op_class;
    facts_.push_back({.is_collective = is_collective(*node),
                      .is_transfer = is_transfer(*node),
                      .is_send = node->op == &kSendOp,
                      .is_receive = node->op == &kReceiveOp,
                      .may_wait = node->phase == Phase::kUpdate || is_sum[id],
                      .is_shared = communicates_along(transfers, *node),
                      .is_inexpensive = kind == OpClass::kElementwise ||
                                        kind == OpClass::kDataMovement || kind == OpClass::kView ||
                                        kind == OpClass::kCollective});
  }
}

std::vector<double> LaunchFacts::seconds_of_launches(const LaunchSeconds& seconds_of) const {
  IndexedVector<FlatNodeId, std::optional<double>> known(program_.nodes.size());
  std::vector<double> seconds;
  seconds.reserve(program_.launches.size());
  for (const FlatLaunch& launch : program_.launches) {
    std::optional<double>& of_node = known[launch.flat_node];
    if (!of_node) of_node = seconds_of(*launch.graph, launch.graph->node(launch.node));
    seconds.push_back(*of_node);
  }
  return seconds;
}

}  // namespace tessera
