// SPDX-License-Identifier: Apache-2.0
#include "tasks/calibrate/link_timer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/cpu/stream.h"
#include "core/graph/op.h"
#include "core/ops/reshard.h"
#include "core/passes/cost.h"
#include "core/runtime/comm/cpu_communicator.h"
#include "tasks/calibrate/kernel_timer.h"

namespace tessera {
namespace {

// The graph of one device: a collective whose longer array has so many bytes of f32.
Graph collective_graph(const OpDef& op, int64_t devices, int64_t device, int64_t bytes) {
  const int64_t elements = bytes / dtype_bytes(DType::kF32) / devices * devices;
  const Type whole = make_type(DType::kF32, {{"x", elements, {}}});
  const Type part = make_type(DType::kF32, {{"x", elements / devices, {}}});
  Node node{.op = &op, .inputs = {ValueId(0)}};
  std::vector<int64_t> group;
  for (int64_t i = 0; i < devices; ++i) group.push_back(i);
  node.attributes = {{"axis", std::string("x")},
                     {"mesh_axes", std::vector<std::string>{"data"}},
                     {"group", group},
                     {"index", device}};
  Graph graph;
  graph.add_input("x", InputKind::kBatch, &op == &kAllGatherOp ? part : whole);
  graph.add_node(node, {&op == &kReduceScatterOp ? part : whole});
  return graph;
}

struct Buffers {
  std::vector<std::byte> in, out, scratch;
};

}  // namespace

TimedCollective timed_collective(const OpDef& op, int64_t devices, int64_t bytes, double seconds) {
  const auto communicator = make_cpu_communicator({.local_devices = devices});
  std::vector<Graph> graphs;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<Buffers> buffers;
  for (int64_t device = 0; device < devices; ++device)
    graphs.push_back(collective_graph(op, devices, device, bytes));
  for (int64_t device = 0; device < devices; ++device) {
    const Graph& graph = graphs[static_cast<size_t>(device)];
    kernels.push_back(communicator->prepare(device, graph, graph.nodes().front()));
    const auto size = static_cast<size_t>(bytes);
    buffers.push_back(
        {std::vector<std::byte>(size), std::vector<std::byte>(size),
         std::vector<std::byte>(static_cast<size_t>(kernels.back()->scratch_bytes()))});
  }
  TimedCollective timed;
  timed.sent = static_cast<double>(sent_bytes(graphs[0], graphs[0].nodes().front()));
  timed.seconds = median_round(devices, seconds, [&](int64_t device, int64_t) {
    Buffers& own = buffers[static_cast<size_t>(device)];
    const std::byte* const in = own.in.data();
    std::byte* const out = own.out.data();
    host_kernel(*kernels[static_cast<size_t>(device)])
        .run({{&in, 1}, {&out, 1}, own.scratch.data()});
  });
  return timed;
}

DeviceLink measured_link(int64_t devices, int64_t most_bytes, double seconds) {
  constexpr int64_t kFewBytes = 1024;
  double begin = 0.0, all_sent = 0.0, all_seconds = 0.0;
  const std::vector<const OpDef*> ops = {&kAllGatherOp, &kReduceScatterOp, &kAllReduceOp};
  for (const OpDef* op : ops) {
    const double least = timed_collective(*op, devices, kFewBytes, seconds).seconds;
    begin += least / static_cast<double>(ops.size());
    const TimedCollective most = timed_collective(*op, devices, most_bytes, seconds);
    all_sent += most.sent;
    all_seconds += std::max(most.seconds - least, 0.01 * most.seconds);
  }
  return {.bandwidth = all_sent / all_seconds, .latency = std::max(begin, 1e-9)};
}

}  // namespace tessera
