// SPDX-License-Identifier: Apache-2.0
#include "core/passes/memory/launch_facts.h"

#include <optional>

#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"

namespace tessera {

LaunchFacts::LaunchFacts(const FlatProgram& program, const std::vector<std::string>& transfers)
    : program_(program) {
  for (const Node* node : program.nodes) {
    const OpClass kind = node->op->op_class;
    facts_.push_back({.is_collective = is_collective(*node),
                      .is_transfer = is_transfer(*node),
                      .is_send = node->op == &kSendOp,
                      .is_receive = node->op == &kReceiveOp,
                      .is_update = node->phase == Phase::kUpdate,
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
