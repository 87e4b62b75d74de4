// SPDX-License-Identifier: Apache-2.0
// Tests two runs of a program at a time on a virtual GPU: their results, the launch that is named
// when one of them fails, and CUDA graphs of several GPUs, of which one cannot be captured.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/check/run_graph.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/executor.h"
#include "plugins/cuda/device/graph.h"
#include "tests/plugins/cuda/gpu_communicator.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/support/catch.h"
#include "tests/support/test_device.h"
#include "tests/support/trial.h"
#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::cuda {
namespace {

using Catch::Contains;
using virtual_gpu::TestGpus;

constexpr int kProducts = 20;
const std::vector<std::string> kResults = {"sum"};

// Builds products in sequence, of one kernel each, and the sum of the last.
Graph chain() {
  Graph graph;
  const Mesh mesh({{"data", 1}});
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  Tensor h = input("x", InputKind::kBatch, parse_type("f32[\"batch=2 embed=4\"]"));
  const Tensor w = input("w", InputKind::kParameter, parse_type("f32[\"embed=4 mlp=4\"]"));
  for (int i = 0; i < kProducts; ++i) {
    const PathScope path(fmt::format("layer{}", i));
    h = rename(einsum(h, w, over("embed")), "mlp", "embed");
  }
  output("sum", reduce_sum(h));
  return graph;
}

// The chain on one virtual GPU.
class Chain {
 public:
  explicit Chain(uint64_t seed)
      : gpus_({{"TESSERA_VIRTUAL_GPUS", "1"}, {"TESSERA_VIRTUAL_GPU_SEED", std::to_string(seed)}}),
        devices_(make_cuda_devices(1, 1)),
        executor_(*devices_[0]) {
    CompileOptions options;
    options.mesh = Mesh({{"data", 1}});
    executor_.add_program(chain(), options);
    executor_.allocate();
    std::vector<double> identity(16, 0.0);
    for (size_t i = 0; i < 4; ++i) identity[5 * i] = 1.0;
    executor_.write_state("w", encoded(DType::kF32, identity));
    for (int i = 0; i < 2; ++i) executor_.run(0);  // The second is captured.
  }
  Executor& executor() { return executor_; }
  void start(double value) {
    executor_.write_input(0, "x", encoded(DType::kF32, std::vector<double>(8, value)));
    executor_.start(0, kResults);
  }

 private:
  TestGpus gpus_;
  std::vector<std::unique_ptr<Device>> devices_;
  Executor executor_;
};

TEST_CASE("two runs under way on a GPU have inputs and results of their own") {
  for (const char* graphs : {"on", "off"}) {
    const ScopedVariable variable(kGraphVariable, graphs);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Chain chain(seed);
      REQUIRE(chain.executor().most_under_way() == 2);
      chain.start(0.0);
      for (int i = 1; i < 6; ++i) {
        chain.start(i);
        REQUIRE(chain.executor().finish() == std::vector<double>{8.0 * (i - 1)});
      }
      REQUIRE(chain.executor().finish() == std::vector<double>{40.0});
      REQUIRE(virtual_gpu::fault() == "");
    }
  }
}

// kAhead: the GPU completes all work of two runs before the host waits for the first one. The
// driver then reports a failure for the event of either run.
enum class Gpu { kBehind, kAhead };
// Two runs at a time, in which a launch fails: the number of runs with results, and the error.
struct Failed {
  int finished = 0;
  std::string error;
};
Failed failed_at(int launch, uint64_t seed, Gpu gpu) {
  Chain chain(seed);
  tessera_virtual_gpu_plan_fault(fmt::format("launch_failure:{}", launch).c_str());
  Failed failed;
  failed.error = error_of([&] {
    chain.start(1.0);
    chain.start(1.0);
  });
  if (gpu == Gpu::kAhead) cuCtxSynchronize();
  // Finishes like the trainer: a later run may report the failure of an earlier one.
  const std::string later = error_of([&] {
    while (chain.executor().under_way() > 0) {
      chain.executor().finish();
      ++failed.finished;
    }
  });
  if (later != "no error") failed.error = later;
  return failed;
}

TEST_CASE("a fault with two runs under way is named in the run in which it happens") {
  const ScopedVariable off(kGraphVariable, "off");
  for (const int number : {1, 2, kProducts})
    for (const int run : {0, 1})
      for (const Gpu gpu : {Gpu::kBehind, Gpu::kAhead})
        for (uint64_t seed = 0; seed < 4; ++seed) {
          INFO("launch " << number << " of run " << run << ", seed " << seed << ", "
                         << (gpu == Gpu::kAhead ? "ahead" : "behind"));
          // A run also sums, in launches after the products.
          const int of_a_run = static_cast<int>(Chain(0).executor().plan(0).launches.size());
          const Failed failed = failed_at(run * of_a_run + number, seed, gpu);
          REQUIRE(failed.finished == run);
          REQUIRE_THAT(failed.error, Contains("op 'einsum' failed: GPU 0: ") &&
                                         Contains(fmt::format("[in layer{}]", number - 1)));
        }
}

TEST_CASE("a fault in a graph with two runs under way names the launches of its own run") {
  const int of_a_run = static_cast<int>(Chain(0).executor().plan(0).launches.size());
  for (const int run : {0, 1})
    for (uint64_t seed = 0; seed < 4; ++seed) {
      INFO("run " << run << ", seed " << seed);
      const Failed failed = failed_at(run * of_a_run + 18, seed, Gpu::kBehind);
      REQUIRE(failed.finished == run);
      REQUIRE_THAT(failed.error, Contains("[in layer16]") && Contains("launches between, failed"));
    }
}

// Builds a sum over the GPUs.
Graph sum_over_gpus(const Mesh& mesh) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch/data=8\"]"));
  output("sum", reshard(reduce_sum(square(x)), parse_type("f32[]")));
  return graph;
}

// Results of runs of a program on two GPUs of one process or of two, connected by the stand-in for
// NCCL. The second run is captured; if `fails`, one GPU has no memory for its graph.
struct SummedRuns {
  std::vector<float> sums;    // Results of process 0.
  std::vector<int64_t> sent;  // Bytes by GPU, over all runs.
  int64_t graphs = 0;         // Number of launches, over both GPUs.
};
SummedRuns summed_runs(int processes, bool fails) {
  constexpr int kRuns = 5;
  Gpus gpus("nccl", 2, 3, {}, processes);
  const Mesh mesh({{"data", 2}});
  CompileOptions options;
  options.mesh = mesh;
  const Graph graph = sum_over_gpus(mesh);
  std::vector<std::unique_ptr<Executor>> executors(static_cast<size_t>(processes));
  const auto on_all_processes = [&](const auto& work) {
    std::vector<std::thread> threads;
    for (size_t process = 0; process < executors.size(); ++process)
      threads.emplace_back([&, process] { work(process, executors[process]); });
    for (std::thread& thread : threads) thread.join();
  };
  on_all_processes([&](size_t process, std::unique_ptr<Executor>& executor) {
    std::vector<Device*> own;
    for (size_t i = 0; i < 2; ++i)
      if (processes == 1 || i == process) own.push_back(gpus.devices[i].get());
    executor = std::make_unique<Executor>(own, *gpus.communicators[process]);
    executor->add_program(graph, options);
    executor->allocate();
  });
  SummedRuns result;
  const int64_t graphs = tessera_virtual_gpu_graph_launches();
  for (int run = 0; run < kRuns; ++run) {
    if (run == 1 && fails) tessera_virtual_gpu_plan_fault("out_of_memory:1");
    on_all_processes([&](size_t process, std::unique_ptr<Executor>& executor) {
      const std::vector<double> rows(processes == 1 ? 8 : 4, run);
      executor->write_input(0, "x", encoded(DType::kF32, rows));
      executor->start(0, kResults);
      const float sum = executor->finish()[0];
      if (process == 0) result.sums.push_back(sum);
    });
  }
  result.graphs = tessera_virtual_gpu_graph_launches() - graphs;
  for (int64_t i = 0; i < 2; ++i)
    result.sent.push_back(
        gpus.communicators[processes == 1 ? 0 : static_cast<size_t>(i)]->bytes_sent(i));
  return result;
}

TEST_CASE("if one GPU cannot capture a step, no GPU of the run launches a graph") {
  const ScopedVariable on(kGraphVariable, "on");
  const std::vector<float> expected = {0.0f, 8.0f, 32.0f, 72.0f, 128.0f};
  for (const int processes : {1, 2}) {
    INFO(processes << " processes");
    const SummedRuns captured = summed_runs(processes, false),
                     failed = summed_runs(processes, true);
    REQUIRE(captured.graphs == 2 * 4);
    REQUIRE(failed.graphs == 0);
    for (const SummedRuns* each : {&captured, &failed}) {
      REQUIRE(each->sums == expected);
      REQUIRE(each->sent == captured.sent);
      REQUIRE(each->sent[0] == 5 * 4);  // One f32 in each run.
    }
  }
}

TEST_CASE("by default NCCL's collectives are in graphs only if each process has one GPU") {
  REQUIRE(summed_runs(1, false).graphs == 0);
  REQUIRE(summed_runs(2, false).graphs == 2 * 4);
}

}  // namespace
}  // namespace tessera::cuda
