// SPDX-License-Identifier: Apache-2.0
// The time of a collective on the links of a hardware file: its bytes, and the hops of a ring or a
// tree.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/compile/cost.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/ops/send.h"
#include "tasks/planner/prices/roofline.h"

namespace tessera {
namespace {

// Whether the two devices of a transfer are in different slices.
bool transfer_crosses_slices(const Node& transfer, const Mesh& mesh) {
  const auto mesh_axes = transfer.attributes.get(key::kMeshAxes);
  const int64_t slice = mesh.axes()[static_cast<size_t>(mesh.position(mesh_axes[0]))].ici;
  const auto pair = transfer.attributes.get(key::kGroup);
  return mesh.index_along(pair[0], mesh_axes) / slice !=
         mesh.index_along(pair[1], mesh_axes) / slice;
}

// Seconds in which a message makes its hops among so many devices. Without a topology the latency
// is that of a whole collective.
double hops_of(const Node& node, double devices, const DeviceLink& link) {
  if (!link.topology || devices <= 1.0) return link.latency;
  if (is_transfer(node) || node.op == &kPermuteOp) return link.latency;  // To one neighbour.
  const double hops =
      link.topology == LinkTopology::kTree ? std::ceil(std::log2(devices)) : devices - 1.0;
  // Reduces to the owners of parts, or to the root of the tree, and back.
  return link.latency * hops * (node.op == &kAllReduceOp ? 2.0 : 1.0);
}

// Latency of a collective with `here` devices in each of its slices. The hops within slices come
// before those between them; a latency of whole collectives includes both.
double latency_of(const Node& node, double here, double slices, bool crosses,
                  const Hardware& hardware) {
  if (!crosses) return hops_of(node, here, hardware.link);
  const double between = hops_of(node, slices, hardware.network);
  const bool adds = hardware.link.topology.has_value() && here > 1.0 && !is_transfer(node);
  return between + (adds ? hops_of(node, here, hardware.link) : 0.0);
}

}  // namespace

LaunchCost collective_cost(const Graph& graph, const Node& node, const Mesh& mesh,
                           const Hardware& hardware) {
  double all = 1.0, slices = 1.0;
  for (const auto& name : node.attributes.get(key::kMeshAxes)) {
    const MeshAxis& axis = mesh.axes()[static_cast<size_t>(mesh.position(name))];
    all *= to_double(axis.size());
    slices *= to_double(axis.dcn);
  }
  // A receiver's link is as busy as the sender's.
  const double bytes = to_double(node.op == &kReceiveOp ? graph.type(node.outputs[0]).bytes()
                                                        : sent_bytes(graph, node));
  // Within slices first, so that only a slice's share crosses the network.
  const double here = all / slices;
  double within = 1.0;
  if (slices > 1.0) {
    within = ((here - 1.0) / here) / ((all - 1.0) / all);
    if (node.op == &kAllToAllOp) within = (here - 1.0) / (all - 1.0);
    if (node.op == &kPermuteOp) within = 0.0;  // Whole shards.
    if (is_transfer(node)) within = transfer_crosses_slices(node, mesh) ? 0.0 : 1.0;
  }
  const DeviceLink &link = hardware.link, &network = hardware.network;
  const double share = hardware.efficiency.links;
  const double on_link = bytes * within / (link.bandwidth * share);
  const double seconds = on_link + bytes * (1.0 - within) / (network.bandwidth * share);
  const bool can_switch = node.op == &kAllReduceOp && here >= 8.0;  // Less gain among fewer.
  return {.seconds = seconds + latency_of(node, here, slices, within < 1.0, hardware),
          .bytes = bytes,
          .determinism = can_switch ? on_link * (1.0 - 1.0 / link.switch_sums.value_or(1.0)) : 0.0,
          .limit = Limit::kLinks};
}

bool span_slices(const std::vector<std::string>& mesh_axes, const Mesh& mesh) {
  return std::ranges::any_of(mesh_axes, [&](const std::string& name) {
    return mesh.axes()[static_cast<size_t>(mesh.position(name))].dcn > 1;
  });
}

bool crosses_slices(const Node& collective, const Mesh& mesh) {
  return is_transfer(collective) ? transfer_crosses_slices(collective, mesh)
                                 : span_slices(collective.attributes.get(key::kMeshAxes), mesh);
}

}  // namespace tessera
