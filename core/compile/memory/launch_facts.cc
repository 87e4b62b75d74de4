// SPDX-License-Identifier: Apache-2.0
#include "core/compile/memory/launch_facts.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/compile/schedule/schedule.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"

namespace tessera {
namespace {

uint64_t bit_of(BufferId buffer) { return uint64_t{1} << (buffer.index() % 64); }

}  // namespace

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

Footprints::Footprints(const FlatProgram& program) : footprints_(program.launches.size()) {
  for (const LaunchId id : program.launches.ids()) {
    const FlatLaunch& launch = program.launches[id];
    Footprint& it = footprints_[id];
    it.reads = launch.inputs;
    it.writes = launch.outputs;
    const bool has_parts = std::ranges::any_of(launch.outputs, [&](const FlatValue& value) {
      return program.buffers[value.buffer].parent != kNone;
    });
    if (has_parts) {
      const std::span<FlatValue> roots = roots_.add(launch.outputs);
      for (FlatValue& value : roots) value = program.root(value);
      it.writes = roots;
    }
    it.scratch = launch.scratch;
    for (const FlatValue& value : it.reads) it.buffers |= bit_of(value.buffer);
    for (const FlatValue& value : it.writes) it.buffers |= bit_of(value.buffer);
    if (it.scratch != kNone) it.buffers |= bit_of(it.scratch);
  }
}

bool depends(const Footprint& later, const Footprint& earlier) {
  if ((later.buffers & earlier.buffers) == 0) return false;
  const auto meet = [](std::span<const FlatValue> ones, std::span<const FlatValue> others) {
    return std::ranges::any_of(ones, [&](FlatValue one) {
      return std::ranges::any_of(others, [&](FlatValue other) { return overlaps(one, other); });
    });
  };
  return meet(earlier.writes, later.reads) || meet(earlier.writes, later.writes) ||
         meet(earlier.reads, later.writes) ||
         (later.scratch != kNone && later.scratch == earlier.scratch);
}

}  // namespace tessera
