// SPDX-License-Identifier: Apache-2.0
// Tests collectives of virtual GPUs, connected by peer copies or by NCCL: they give the results of
// the communicator of CPU devices. The virtual GPU runs streams in a random order that events
// permit and reports accesses that no event orders.
#include "core/runtime/comm/communicator.h"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/compile/cost.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/device_kinds.h"
#include "core/runtime/executor/executor.h"
#include "plugins/cuda/communicator/peer_communicator.h"
#include "tests/plugins/cuda/gpu_communicator.h"
#include "tests/support/catch.h"
#include "tests/support/communicator_trial.h"
#include "tests/support/test_device.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;

constexpr int kSteps = 3;

void check_collectives(const std::string& collectives, const Mesh& mesh,
                       const std::vector<std::string>& axes, DType dtype, uint64_t seed) {
  for (const CommunicatorTrial& trial : collective_trials(mesh, axes, dtype)) {
    Gpus gpus(collectives, mesh.num_devices(), seed);
    check_trial(trial, gpus);
  }
}

TEST_CASE("collectives of GPUs give the CPU's results over any axes of a mesh") {
  const std::string how = GENERATE("peer", "nccl");
  uint64_t seed = 0;
  const Mesh square({{"a", 2}, {"b", 2}});
  check_collectives(how, Mesh({{"a", 1}}), {"a"}, DType::kF32, seed++);
  check_collectives(how, Mesh({{"a", 2}}), {"a"}, DType::kF32, seed++);
  check_collectives(how, Mesh({{"a", 3}}), {"a"}, DType::kF32, seed++);
  for (const auto& axes : std::vector<std::vector<std::string>>{{"a"}, {"b"}, {"b", "a"}})
    check_collectives(how, square, axes, DType::kF32, seed++);
}

TEST_CASE("collectives of GPUs give the CPU's results in every dtype") {
  const std::string how = GENERATE("peer", "nccl");
  for (const DType dtype : {DType::kBF16, DType::kF64, DType::kI32, DType::kU32})
    check_collectives(how, Mesh({{"a", 4}}), {"a"}, dtype, 7);
}

TEST_CASE("sums over seven and eight GPUs that copy have the CPU's order") {
  for (const int64_t count : {7, 8}) {
    Gpus gpus("peer", count);
    for (const char* dtype : {"f32", "bf16"})
      check_trial({Mesh({{"a", count}}),
                   {"a"},
                   "all_reduce",
                   parse_type(fmt::format("{}[\"x=1680\"]", dtype))},
                  gpus);
  }
}

TEST_CASE("no order of streams that the events allow changes a collective of GPUs") {
  const std::string how = GENERATE("peer", "nccl");
  const Mesh mesh({{"a", 4}});
  const std::string axis = "y";
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Gpus gpus(how, 4, seed);
    const Type part = parse_type("f32[\"x=3 y=2 z=4\"]"),
               whole = parse_type("f32[\"x=3 y=8 z=4\"]");
    check_trial({mesh, {"a"}, "all_gather", part, {{key::kAxis, axis}}}, gpus);
    check_trial({mesh, {"a"}, "reduce_scatter", whole, {{key::kAxis, axis}}}, gpus);
    check_trial({mesh, {"a"}, "all_reduce", whole, {}, 1, true}, gpus);
    check_trial({mesh, {"a"}, "permute", part}, gpus);
  }
}

// Sums x over the devices, three times.
Graph three_sums(const Mesh& mesh) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const PathScope path("lm.loss");
  Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch/data=64\"]"));
  for (int i = 0; i < 3; ++i) x = x * reshard(reduce_sum(x), parse_type("f32[]"));
  output("y", reshard(reduce_sum(x), parse_type("f32[]")));
  return graph;
}

float run_three_sums(const std::vector<std::unique_ptr<Device>>& devices,
                     Communicator& communicator, Communication how) {
  const Mesh mesh({{"data", static_cast<int64_t>(devices.size())}});
  Executor executor(pointers(devices), communicator);
  CompileOptions compile;
  compile.mesh = mesh;
  compile.communication = how;
  executor.add_program(three_sums(mesh), compile);
  executor.allocate();
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 5) / 8.0f;
  for (int step = 0; step < kSteps; ++step) {
    executor.write_input(0, "x", std::as_bytes(std::span(x)));
    executor.run(0);
  }
  return executor.read_scalar(0, "y");
}

TEST_CASE("step programs run on several GPUs, with and without a communication stream") {
  const std::string collectives = GENERATE("peer", "nccl");
  for (const int64_t count : {2, 4}) {
    const auto on_cpu = make_communicators(count, 1);
    const auto cpus = find_device_kind("cpu").make_devices(count, 1, 0);
    const float expected = run_three_sums(cpus, *on_cpu[0], Communication::kInline);
    std::optional<float> first;
    for (const Communication how : {Communication::kInline, Communication::kOverlapped})
      for (uint64_t seed = 0; seed < 4; ++seed) {
        Gpus gpus(collectives, count, seed);
        const float got = run_three_sums(gpus.devices, gpus.communicator(), how);
        REQUIRE(got == Approx(expected).epsilon(1e-6));
        if (!first) first = got;
        REQUIRE(got == *first);
      }
  }
}

const CommunicatorTrial kSum{
    Mesh({{"a", 2}}), {"a"}, "all_reduce", make_type(DType::kF32, {{"x", 8}})};

TEST_CASE("a GPU that is missing from a collective is named after the timeout") {
  const std::string how = GENERATE("peer", "nccl");
  Gpus gpus(how, 2, 1, {.timeout = milliseconds(1000)});
  const auto errors = errors_of(kSum, gpus, {true, false});
  INFO(how);
  REQUIRE_THAT(errors[0], Contains("device 0 has waited 1 s in collective ") &&
                              Contains(", all_reduce over a [lm.ffn, ") &&
                              Contains("for device 1, which has ") &&
                              Contains(how == "peer" ? "not run a collective yet"
                                                     : "finished collective 0, all_gather over a "
                                                       "[connecting GPUs for lm.ffn, "));
}

TEST_CASE("a stopped communicator of GPUs ends the collectives that wait, and all later ones") {
  const std::string how = GENERATE("peer", "nccl");
  Gpus gpus(how, 2);
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(300));
    gpus.communicator().stop("the node is drained");
  });
  const auto errors = errors_of(kSum, gpus, {true, false});
  stopper.join();
  REQUIRE_THAT(errors[0], Contains("the run was stopped: the node is drained"));
  for (const std::string& error : errors_of(kSum, gpus, {true, true}))
    REQUIRE_THAT(error, Contains("the run was stopped: the node is drained"));
}

TEST_CASE("GPUs that cannot copy from each other are refused with advice") {
  const auto refusal = [](const CommunicatorOptions& options) {
    return error_of([&] { make_cuda_communicator(options); });
  };
  {
    const std::map<std::string, std::string> without{{"TESSERA_VIRTUAL_GPU_PEER_ACCESS", "0"}};
    const virtual_gpu::TestGpus gpus(without);
    REQUIRE(refusal({.local_devices = 1}) == "no error");
    REQUIRE_THAT(refusal({.local_devices = 2}),
                 Contains("cannot read the memory of GPU 1") && Contains("CUDA_VISIBLE_DEVICES"));
  }
  const virtual_gpu::TestGpus gpus;
  REQUIRE_THAT(refusal({.local_devices = 33}),
               Contains("33 GPUs in one process, expected at most 32"));
}

TEST_CASE("the device kind cuda copies between virtual GPUs unless it is told otherwise") {
  const virtual_gpu::TestGpus gpus;
  const auto communicator = find_device_kind("cuda").make_communicator({.local_devices = 2});
  REQUIRE(dynamic_cast<PeerCommunicator*>(communicator.get()) != nullptr);
}

}  // namespace
}  // namespace tessera::cuda
