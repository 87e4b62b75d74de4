// SPDX-License-Identifier: Apache-2.0
// Times CPU kernels one by one: bench_kernels [--threads=N] [--json] [part of a case's name].
// Reports the best of several runs. One thread (the default) is measured in its processor time,
// which depends little on other load; several threads in wall time. Bytes are those of all operands
// and results, counted once each.
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/backend/cpu/device.h"
#include "core/backend/cpu/stream.h"
#include "core/backend/reference/array.h"
#include "core/base/random.h"
#include "core/graph/op.h"
#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/norm.h"
#include "core/ops/optimizer.h"
#include "core/ops/random.h"
#include "core/ops/rotary.h"
#include "core/passes/cost.h"
#include "tests/support/kernel_check.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Tensors = std::vector<Tensor>;

struct BenchCase {
  std::string name;
  std::vector<std::string> inputs;
  std::function<void(const Tensors&)> trace;
  bool gradient = true;
  int64_t integers = 1000;  // Exclusive bound of integer inputs.
};

void add_attention(std::vector<BenchCase>& cases, const std::string& dtype, int batch, int seq,
                   int heads, int kv_heads, int head_dim) {
  const std::string kv = fmt::format("{}[\"batch={} key_seq={} kv_heads={} head_dim={}\"]", dtype,
                                     batch, seq, kv_heads, head_dim);
  cases.push_back({fmt::format("attention/{}/b{}/s{}/h{}/kv{}/d{}", dtype, batch, seq, heads,
                               kv_heads, head_dim),
                   {fmt::format("{}[\"batch={} seq={} heads={} head_dim={}\"]", dtype, batch, seq,
                                heads, head_dim),
                    kv, kv},
                   [](const Tensors& in) { attention(in[0], in[1], in[2], {.scale = 0.125}); }});
}

std::vector<BenchCase> bench_cases() {
  std::vector<BenchCase> cases;
  for (const std::string dtype : {"f32", "bf16"}) {
    add_attention(cases, dtype, 8, 256, 8, 8, 32);
    add_attention(cases, dtype, 4, 512, 12, 12, 64);
    add_attention(cases, dtype, 1, 2048, 16, 4, 128);
    const std::string hidden = fmt::format("{}[\"batch=8 seq=512 embed=768\"]", dtype);
    cases.push_back({"rms_norm/" + dtype, {hidden, "f32[\"embed=768\"]"}, [](const Tensors& in) {
                       rms_norm(in[0], in[1], "embed", 1e-6);
                     }});
    cases.push_back({"layer_norm/" + dtype,
                     {hidden, "f32[\"embed=768\"]", "f32[\"embed=768\"]"},
                     [](const Tensors& in) { layer_norm(in[0], in[1], in[2], "embed", 1e-6); }});
    cases.push_back(
        {"cross_entropy/" + dtype,
         {fmt::format("{}[\"batch=4 seq=256 vocab=50257\"]", dtype), "i32[\"batch=4 seq=256\"]"},
         [](const Tensors& in) { cross_entropy(in[0], in[1], "vocab"); }});
    cases.push_back({"rotary/" + dtype,
                     {fmt::format("{}[\"batch=8 seq=512 heads=12 head_dim=64\"]", dtype),
                      "i32[\"batch=8 seq=512\"]"},
                     [](const Tensors& in) { rotary(in[0], in[1], "head_dim"); },
                     /*gradient=*/false});
    cases.push_back({"dropout/" + dtype,
                     {hidden, "i32[\"\"]"},
                     [](const Tensors& in) { dropout(in[0], 0.1, in[1]); },
                     /*gradient=*/false});
  }
  const std::string slot = "f32[\"embed=16777216\"]", scalar = "f32[\"\"]";
  cases.push_back({"adam_update/f32",
                   {slot, slot, slot, slot, scalar, "bool[\"\"]"},
                   [](const Tensors& in) {
                     adam_update({in[0], in[1], in[2]}, in[3], in[4], in[4], in[4], in[5], {});
                   },
                   /*gradient=*/false,
                   /*integers=*/2});
  return cases;
}

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
  Trial trial({}, bench.inputs);
  bench.trace(trial.inputs());
  if (bench.gradient) traced_gradient(trial.graph(), Node(trial.graph().nodes().front()));
  for (const Node& node : trial.graph().nodes()) {
    if (node.op->decomposition == nullptr) continue;
    const Timing timing = time_node(trial.graph(), node, bench.integers, device, threads);
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
