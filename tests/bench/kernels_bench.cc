// SPDX-License-Identifier: Apache-2.0
// Times CPU kernels one by one: bench_kernels [--threads=N] [--json] [part of a case's name].
// Reports the best of several runs. One thread (the default) is measured in its processor time,
// which depends little on other load; several threads in wall time. Bytes are those of all operands
// and results, counted once each.
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/base/random.h"
#include "core/check/bench_cases.h"
#include "core/compile/cost.h"
#include "core/devices/cpu/device.h"
#include "core/devices/cpu/stream.h"
#include "core/devices/reference/array.h"
#include "core/graph/op.h"
#include "core/ops/einsum.h"

namespace tessera {
namespace {

// A buffer for a value, filled with small numbers that the dtype represents exactly.
class Buffer {
 public:
  Buffer(const Type& type, uint64_t key, int64_t integers)
      : memory_(static_cast<std::byte*>(
            std::aligned_alloc(64, static_cast<size_t>((type.bytes() + 63) / 64 * 64)))) {
    std::vector<double> values(static_cast<size_t>(type.elements()));
    for (size_t i = 0; i < values.size(); i += 4) {
      const PhiloxBlock block = philox(key, i, 0);
      const std::array<float, 4> normals = normals_from_block(block);
      for (size_t j = 0; j < 4 && i + j < values.size(); ++j)
        values[i + j] = is_floating(type.dtype)
                            ? std::abs(normals[j])
                            : static_cast<double>(block[j] % static_cast<uint64_t>(integers));
      if (type.dtype == DType::kBool) values[i] = 1.0;
    }
    encode_values(type.dtype, values, memory_.get());
  }
  std::byte* data() { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

struct Timing {
  double seconds = 0.0;
  double flops = 0.0, bytes = 0.0;
};

double seconds_now(int threads) {
  timespec now{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Timing time_node(const Graph& graph, const Node& node, int64_t integers, Device& device,
                 int threads) {
  const std::unique_ptr<Kernel> kernel = device.prepare(graph, node);
  std::vector<Buffer> buffers;
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  Timing timing{.seconds = 1e9, .flops = node_flops(graph, node)};
  for (const ValueId id : node.inputs) {
    buffers.emplace_back(graph.type(id), id.index(), integers);
    inputs.push_back(buffers.back().data());
    timing.bytes += static_cast<double>(graph.type(id).bytes());
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const Type& type = graph.type(node.outputs[o]);
    timing.bytes += static_cast<double>(type.bytes());
    const bool in_place = o < inputs.size() && type == graph.type(node.inputs[o]) &&
                          kernel->may_overwrite(static_cast<int64_t>(o), static_cast<int64_t>(o));
    if (!in_place) buffers.emplace_back(type, 0, integers);
    outputs.push_back(in_place ? const_cast<std::byte*>(inputs[o]) : buffers.back().data());
  }
  Buffer scratch(make_type(DType::kF32, {{"bytes", kernel->scratch_bytes() / 4 + 16, {}}}), 0, 1);
  double spent = 0.0;
  for (int run = 0; run < 5 || (spent < 0.5 && run < 200); ++run) {
    const double begin = seconds_now(threads);
    host_kernel(*kernel).run({inputs, outputs, scratch.data()});
    const double elapsed = seconds_now(threads) - begin;
    spent += elapsed;
    timing.seconds = std::min(timing.seconds, elapsed);
  }
  return timing;
}

void run_case(const BenchCase& bench, Device& device, int threads, bool json) {
  const Graph graph = traced_bench(bench);
  for (const Node& node : graph.nodes()) {
    if (node.op->decomposition == nullptr && node.op != &kEinsumOp) continue;
    const Timing timing = time_node(graph, node, bench.integers, device, threads);
    const double gflops = timing.flops / timing.seconds * 1e-9;
    const double gigabytes = timing.bytes / timing.seconds * 1e-9;
    if (json) {
      fmt::print(
          "{{\"case\":\"{}\",\"op\":\"{}\",\"ms\":{:.4f},\"gflops\":{:.2f},"
          "\"gbytes_per_s\":{:.2f}}}\n",
          bench.name, node.op->name, timing.seconds * 1e3, gflops, gigabytes);
    } else {
      fmt::print("{:<40} {:<20} {:9.3f} ms {:8.1f} GFLOP/s {:7.1f} GB/s\n", bench.name,
                 node.op->name, timing.seconds * 1e3, gflops, gigabytes);
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  int threads = 1;
  bool json = false;
  std::string part;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--threads=")) {
      threads = std::atoi(argument.c_str() + 10);
    } else if (argument == "--json") {
      json = true;
    } else {
      part = argument;
    }
  }
  const auto device = tessera::make_cpu_device(threads);
  for (const tessera::BenchCase& bench : tessera::bench_cases())
    if (bench.name.find(part) != std::string::npos)
      tessera::run_case(bench, *device, threads, json);
}
