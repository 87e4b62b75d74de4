// SPDX-License-Identifier: Apache-2.0
// Collectives of GPUs that read each other's memory, on virtual GPUs: they give the bits that the
// communicator of CPU devices gives. The virtual GPU runs streams in a random order that events
// permit and reports accesses that no event orders.
#include "core/runtime/comm/communicator.h"

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/passes/cost.h"
#include "core/runtime/comm/cpu_communicator.h"
#include "core/runtime/executor/device_kinds.h"
#include "core/runtime/executor/executor.h"
#include "plugins/cuda/communicator/cuda_communicator.h"
#include "plugins/cuda/device/device.h"
#include "tests/support/catch.h"
#include "tests/support/communicator_trial.h"
#include "tests/support/test_device.h"
#include "tests/support/transports.h"
#include "tests/support/trial.h"
#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::cuda {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;

constexpr int kSteps = 3;

// Connected devices on fresh virtual GPUs.
struct Gpus {
  explicit Gpus(int64_t count, uint64_t seed = 1, CommunicatorOptions options = {})
      : gpus({{"TESSERA_VIRTUAL_GPUS", std::to_string(count)},
              {"TESSERA_VIRTUAL_GPU_SEED", std::to_string(seed)}}) {
    devices = make_cuda_devices(count, 1);
    options.local_devices = count;
    communicators.push_back(make_cuda_communicator(options));
  }
  Communicator& communicator() { return *communicators[0]; }

  virtual_gpu::TestGpus gpus;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Communicator>> communicators;
};

Bytes filled(int64_t bytes) { return Bytes(static_cast<size_t>(bytes), std::byte{0xa5}); }

// Runs the collective of one GPU in each step, on a stream of its own. The host waits only at the
// end: the operand is overwritten, and the result read, as soon as the events of the step allow.
std::vector<Bytes> steps_of_device(const CommunicatorTrial& trial, int64_t number, Device& device,
                                   Communicator& communicator,
                                   const std::vector<Bytes>& operand_of_step) {
  const Graph graph = trial_graph(trial, number);
  const Node& node = graph.nodes().front();
  const auto kernel = communicator.prepare(number, graph, node);
  CHECK(kernel->scratch_bytes() == cuda_collective_needs(graph, node).scratch_bytes);
  const auto compute = device.make_stream(StreamUse::kCompute);
  const auto communication = device.make_stream(StreamUse::kCommunication);
  const auto written = device.make_event(), done = device.make_event();
  const int64_t in_bytes = trial.in.bytes(), out_bytes = trial.out().bytes();
  const DeviceAddress in = device.allocate(in_bytes);
  const DeviceAddress out = trial.in_place ? in : device.allocate(out_bytes);
  std::vector<Bytes> results(operand_of_step.size(), filled(out_bytes));
  for (size_t step = 0; step < operand_of_step.size(); ++step) {
    compute->copy_from_host(in, operand_of_step[step]);
    compute->record(*written);
    communication->wait(*written);
    communication->launch(*kernel, {.inputs = {&in, 1}, .outputs = {&out, 1}, .scratch = {}});
    communication->record(*done);
    compute->wait(*done);
    compute->copy_to_host(results[step], out);
  }
  compute->synchronize();
  communication->synchronize();
  device.release(in, in_bytes);
  if (!trial.in_place) device.release(out, out_bytes);
  return results;
}

// operands[step][device], results alike.
using StepBytes = std::vector<std::vector<Bytes>>;

StepBytes run_steps(const CommunicatorTrial& trial, Gpus& gpus, const StepBytes& operands) {
  const size_t count = gpus.devices.size();
  StepBytes results(operands.size(), std::vector<Bytes>(count));
  const auto errors =
      on_all_devices(gpus.communicators, [&](int64_t number, Communicator& communicator) {
        const auto device = static_cast<size_t>(number);
        std::vector<Bytes> own;
        for (const auto& step : operands) own.push_back(step[device]);
        try {
          own = steps_of_device(trial, number, *gpus.devices[device], communicator, own);
        } catch (const std::exception& error) {
          communicator.stop(error.what());
          throw;
        }
        for (size_t step = 0; step < operands.size(); ++step) results[step][device] = own[step];
      });
  for (const std::string& error : errors) REQUIRE(error == "");
  return results;
}

// Operands that differ from step to step.
StepBytes operands_of(const CommunicatorTrial& trial) {
  StepBytes all;
  const bool floats = is_floating(trial.in.dtype);
  for (int step = 0; step < kSteps; ++step) {
    auto operands = floats ? random_operands(trial) : whole_operands(trial);
    for (auto& values : operands)
      for (double& value : values)
        value = trial.in.dtype == DType::kU32 ? value + 20 : value * (step + 1);
    all.push_back(encoded_operands(trial.in.dtype, operands));
  }
  return all;
}

// Bit for bit what the CPU's communicator gives.
void check_trial(const CommunicatorTrial& trial, Gpus& gpus) {
  INFO(trial.text());
  const StepBytes operands = operands_of(trial);
  const auto sent = [&](int64_t device) { return gpus.communicator().bytes_sent(device); };
  std::vector<int64_t> sent_before;
  for (int64_t i = 0; i < trial.mesh.num_devices(); ++i) sent_before.push_back(sent(i));
  const StepBytes results = run_steps(trial, gpus, operands);
  const auto on_cpu = make_communicators(trial.mesh.num_devices(), 1);
  for (size_t step = 0; step < operands.size(); ++step)
    REQUIRE(results[step] == run_trial(trial, on_cpu, operands[step]));
  for (int64_t i = 0; i < trial.mesh.num_devices(); ++i)
    REQUIRE(sent(i) - sent_before[static_cast<size_t>(i)] == on_cpu[0]->bytes_sent(i));
}

void check_collectives(const Mesh& mesh, const std::vector<std::string>& axes, DType dtype,
                       uint64_t seed) {
  for (const CommunicatorTrial& trial : collective_trials(mesh, axes, dtype)) {
    Gpus gpus(mesh.num_devices(), seed);
    check_trial(trial, gpus);
  }
}

TEST_CASE("collectives of GPUs give the CPU's bits over any axes of a mesh") {
  uint64_t seed = 0;
  const Mesh square({{"a", 2}, {"b", 2}});
  check_collectives(Mesh({{"a", 1}}), {"a"}, DType::kF32, seed++);
  check_collectives(Mesh({{"a", 2}}), {"a"}, DType::kF32, seed++);
  check_collectives(Mesh({{"a", 3}}), {"a"}, DType::kF32, seed++);
  for (const auto& axes : std::vector<std::vector<std::string>>{{"a"}, {"b"}, {"b", "a"}})
    check_collectives(square, axes, DType::kF32, seed++);
}

TEST_CASE("collectives of GPUs give the CPU's bits in every dtype") {
  for (const DType dtype : {DType::kBF16, DType::kF64, DType::kI32, DType::kU32})
    check_collectives(Mesh({{"a", 4}}), {"a"}, dtype, 7);
}

TEST_CASE("sums over seven and eight GPUs have the CPU's order") {
  for (const int64_t count : {7, 8}) {
    Gpus gpus(count);
    for (const char* dtype : {"f32", "bf16"})
      check_trial({Mesh({{"a", count}}),
                   {"a"},
                   "all_reduce",
                   parse_type(fmt::format("{}[\"x=1680\"]", dtype))},
                  gpus);
  }
}

TEST_CASE("no order of streams that the events allow changes a collective of GPUs") {
  const Mesh mesh({{"a", 4}});
  const std::string axis = "y";
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Gpus gpus(4, seed);
    const Type part = parse_type("f32[\"x=3 y=2 z=4\"]"),
               whole = parse_type("f32[\"x=3 y=8 z=4\"]");
    check_trial({mesh, {"a"}, "all_gather", part, {{"axis", axis}}}, gpus);
    check_trial({mesh, {"a"}, "reduce_scatter", whole, {{"axis", axis}}}, gpus);
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
  for (const int64_t count : {2, 4}) {
    const auto on_cpu = make_communicators(count, 1);
    const auto cpus = find_device_kind("cpu").make_devices(count, 1, 0);
    const float expected = run_three_sums(cpus, *on_cpu[0], Communication::kInline);
    std::optional<float> first;
    for (const Communication how : {Communication::kInline, Communication::kOverlapped})
      for (uint64_t seed = 0; seed < 4; ++seed) {
        Gpus gpus(count, seed);
        const float got = run_three_sums(gpus.devices, gpus.communicator(), how);
        REQUIRE(got == Approx(expected).epsilon(1e-6));
        if (!first) first = got;
        REQUIRE(got == *first);
      }
  }
}

const CommunicatorTrial kSum{
    Mesh({{"a", 2}}), {"a"}, "all_reduce", make_type(DType::kF32, {{"x", 8}})};

// The errors of the GPUs if `joins` are those that run the collective.
std::vector<std::string> errors_of(Gpus& gpus, const std::vector<bool>& joins) {
  const std::vector<Bytes> operand = {Bytes(8 * 4)};
  return on_all_devices(gpus.communicators, [&](int64_t number, Communicator& communicator) {
    if (!joins[static_cast<size_t>(number)]) return;
    steps_of_device(kSum, number, *gpus.devices[static_cast<size_t>(number)], communicator,
                    operand);
  });
}

TEST_CASE("a GPU that is missing from a collective is named after the timeout") {
  Gpus gpus(2, 1, {.timeout = milliseconds(300)});
  const auto errors = errors_of(gpus, {true, false});
  REQUIRE_THAT(errors[0],
               Contains("device 0 has waited 0.3 s in collective 0, all_reduce over a [lm.ffn, "));
  REQUIRE_THAT(errors[0], Contains("for device 1, which has not run a collective yet"));
}

TEST_CASE("a stopped communicator of GPUs ends the collectives that wait, and all later ones") {
  Gpus gpus(2);
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(100));
    gpus.communicator().stop("the node is drained");
  });
  const auto errors = errors_of(gpus, {true, false});
  stopper.join();
  REQUIRE_THAT(errors[0], Contains("the run was stopped: the node is drained"));
  for (const std::string& error : errors_of(gpus, {true, true}))
    REQUIRE_THAT(error, Contains("the run was stopped: the node is drained"));
}

TEST_CASE("GPUs that cannot be connected are refused with the way out") {
  const auto refusal = [](CommunicatorOptions options) {
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
  REQUIRE_THAT(refusal({.local_devices = 1, .transport = make_loopback(2, {"a", "b"})[0]}),
               Contains("--device=cuda in 2 processes") && Contains("NCCL") &&
                   Contains("run one process with --devices=N"));
}

TEST_CASE("the device kind cuda has the communicator of GPUs") {
  const virtual_gpu::TestGpus gpus;
  const auto communicator = find_device_kind("cuda").make_communicator({.local_devices = 2});
  REQUIRE(dynamic_cast<CudaCommunicator*>(communicator.get()) != nullptr);
}

}  // namespace
}  // namespace tessera::cuda
