// SPDX-License-Identifier: Apache-2.0
// Rates of collectives between the devices of one process, compared with copying the same bytes:
// bench_collectives [seconds per measurement].
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "core/backend/cpu/stream.h"
#include "core/graph/op.h"
#include "core/runtime/comm/cpu_communicator.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The graph of one device: a collective whose longer array has `elements` f32.
Graph collective(const std::string& op, int64_t devices, int64_t device, int64_t elements) {
  const Type whole = make_type(DType::kF32, {{"x", elements}});
  const Type part = make_type(DType::kF32, {{"x", elements / devices}});
  Node node{.op = &find_op(op), .inputs = {ValueId(0)}};
  std::vector<int64_t> group;
  for (int64_t i = 0; i < devices; ++i) group.push_back(i);
  node.attributes = {{"axis", std::string("x")},
                     {"mesh_axes", std::vector<std::string>{"data"}},
                     {"group", group},
                     {"index", device}};
  Graph graph;
  graph.add_input("x", InputKind::kBatch, op == "all_gather" ? part : whole);
  graph.add_node(node, {op == "reduce_scatter" ? part : whole});
  return graph;
}

// Median seconds of a round in which all threads start work(thread) together.
template <typename Work>
double median_round(int64_t threads, double seconds, const Work& work) {
  std::vector<double> times;
  std::atomic<bool> done{false};
  Clock::time_point begin;
  const auto first = Clock::now();
  std::barrier all_here(threads, [&]() noexcept {
    if (begin != Clock::time_point{}) times.push_back(seconds_since(begin));
    done = seconds_since(first) > seconds && times.size() > 10;
    begin = Clock::now();
  });
  std::vector<std::thread> workers;
  for (int64_t thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      for (all_here.arrive_and_wait(); !done; all_here.arrive_and_wait()) work(thread);
    });
  }
  for (std::thread& worker : workers) worker.join();
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Buffers {
  explicit Buffers(int64_t bytes)
      : in(static_cast<size_t>(bytes), std::byte{1}), out(static_cast<size_t>(bytes)) {}
  std::vector<std::byte> in, out, scratch;
};

void measure(const std::string& op, int64_t devices, int64_t bytes, double seconds) {
  const auto communicator = make_cpu_communicator({.local_devices = devices});
  std::vector<Graph> graphs;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<Buffers> buffers;
  for (int64_t device = 0; device < devices; ++device)
    graphs.push_back(collective(op, devices, device, bytes / 4));
  for (int64_t device = 0; device < devices; ++device) {
    const Graph& graph = graphs[static_cast<size_t>(device)];
    kernels.push_back(communicator->prepare(device, graph, graph.nodes().front()));
    buffers.emplace_back(bytes).scratch.resize(
        static_cast<size_t>(kernels.back()->scratch_bytes()));
  }
  const double time = median_round(devices, seconds, [&](int64_t device) {
    Buffers& own = buffers[static_cast<size_t>(device)];
    const std::byte* const in = own.in.data();
    std::byte* const out = own.out.data();
    host_kernel(*kernels[static_cast<size_t>(device)])
        .run({{&in, 1}, {&out, 1}, own.scratch.data()});
  });
  // The bound: each device copies as many bytes as it receives, without waiting.
  const int64_t share = bytes / devices * (devices - 1) * (op == "all_reduce" ? 2 : 1);
  const double bound = median_round(devices, seconds, [&](int64_t device) {
    const Buffers& next = buffers[static_cast<size_t>((device + 1) % devices)];
    Buffers& own = buffers[static_cast<size_t>(device)];
    for (int64_t left = share; left > 0; left -= bytes)
      std::memcpy(own.out.data(), next.in.data(), static_cast<size_t>(std::min(left, bytes)));
  });
  fmt::print("{:15} {} devices {:>9} bytes {:>9.1f} us {:>6.2f} GB/s a device, {:.2f} of memcpy\n",
             op, devices, bytes, time * 1e6, static_cast<double>(share) / time * 1e-9,
             bound / time);
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 0.3;
  for (const char* op : {"all_gather", "reduce_scatter", "all_reduce"})
    for (const int64_t devices : {2, 4, 8})
      for (const int64_t bytes : {int64_t{4096}, int64_t{1} << 20, int64_t{16} << 20})
        tessera::measure(op, devices, bytes, seconds);
  return 0;
}
