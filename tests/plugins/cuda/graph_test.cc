// SPDX-License-Identifier: Apache-2.0
// Tests step programs as CUDA graphs on the virtual GPU, which replays a graph in any order that
// its edges permit: they have the bits of single launches, and failures are reported.
#include "plugins/cuda/device/graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/check/run_graph.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/devices/device.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/executor.h"
#include "plugins/cuda/communicator/cuda_communicator.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/device/kernel.h"
#include "tests/plugins/cuda/product_trial.h"
#include "tests/support/catch.h"
#include "tests/support/test_device.h"
#include "tests/support/trial.h"
#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::cuda {
namespace {

using Bytes = std::vector<std::byte>;
using Catch::Contains;
using virtual_gpu::TestGpus;

constexpr int kBatch = 8, kWidth = 12, kLayers = 5;

// Builds a step of gradient descent on several matrices, data-parallel. Gradients are summed over
// devices in parallel with the rest of the backward pass.
Graph training(const Mesh& mesh, int layers) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch/data=8 embed=12\"]"));
  const Tensor rate = input("rate", InputKind::kScalar, parse_type("f32[]"));
  std::vector<Tensor> weights;
  Tensor h = x;
  for (int i = 0; i < layers; ++i) {
    const PathScope path(fmt::format("layer{}", i));
    weights.push_back(input(fmt::format("w{}", i), InputKind::kParameter,
                            parse_type("f32[\"embed=12 mlp=12\"]")));
    h = rename(silu(einsum(h, weights.back(), over("embed"))), "mlp", "embed");
  }
  const Tensor loss = reshard(reduce_sum(square(h)), parse_type("f32[]"));
  output("loss", loss);
  const std::vector<Tensor> slopes = gradients(loss, weights);
  const PhaseScope update(Phase::kUpdate);
  for (size_t i = 0; i < weights.size(); ++i)
    graph.add_update(fmt::format("w{}", i), (weights[i] - slopes[i] * rate).id());
  return graph;
}

Bytes floats(int count, int seed) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(std::sin(seed * 1000.0 + i));
  return encoded(DType::kF32, values);
}

// Returns a batch whose halves are equal.
Bytes batch(int step) {
  Bytes half = floats(kBatch / 2 * kWidth, step);
  half.insert(half.end(), half.begin(), half.begin() + static_cast<ptrdiff_t>(half.size()));
  return half;
}

struct Run {
  std::vector<float> losses;
  std::vector<Bytes> weights;
  int64_t graphs = 0;  // Number of launches, over all devices.
  friend bool operator==(const Run& a, const Run& b) {
    return a.losses == b.losses && a.weights == b.weights;
  }
};

constexpr int kSteps = 5;

// A training program, run for some steps, with different inputs in each and new weights before the
// last, like after reading a checkpoint.
class Training {
 public:
  Training(Executor executor, const Mesh& mesh, Communication how, int layers = kLayers)
      : executor_(std::move(executor)), layers_(layers) {
    CompileOptions options;
    options.mesh = mesh;
    options.communication = how;
    program_ = executor_.add_program(training(mesh, layers), options);
    executor_.allocate();
    write_weights(100);
  }
  Executor& executor() { return executor_; }

  void write_weights(int seed) {
    for (int i = 0; i < layers_; ++i)
      executor_.write_state(fmt::format("w{}", i), floats(kWidth * kWidth, seed + i));
  }
  float step(int number) {
    executor_.write_input(program_, "x", batch(number));
    executor_.write_input(program_, "rate", encoded(DType::kF32, {0.001 * (number + 1)}));
    executor_.run(program_);
    return executor_.read_scalar(program_, "loss");
  }
  Run run() {
    Run run;
    const int64_t before = tessera_virtual_gpu_graph_launches();
    for (int i = 0; i < kSteps; ++i) {
      if (i == kSteps - 1) write_weights(200);
      run.losses.push_back(step(i));
    }
    for (int i = 0; i < layers_; ++i) {
      run.weights.emplace_back(kWidth * kWidth * 4);
      executor_.read_state(fmt::format("w{}", i), run.weights.back());
    }
    run.graphs = tessera_virtual_gpu_graph_launches() - before;
    return run;
  }

 private:
  Executor executor_;
  int layers_, program_ = 0;
};

std::map<std::string, std::string> gpus_of(int count, uint64_t seed) {
  return {{"TESSERA_VIRTUAL_GPUS", std::to_string(count)},
          {"TESSERA_VIRTUAL_GPU_SEED", std::to_string(seed)}};
}

Run run_on_one(uint64_t seed) {
  const TestGpus gpus(gpus_of(1, seed));
  const auto devices = make_cuda_devices(1, 1);
  return Training(Executor(*devices[0]), Mesh({{"data", 1}}), Communication::kInline).run();
}

TEST_CASE("a step that is replayed as a graph has the bits of launches one by one") {
  const ScopedVariable off(kGraphVariable, "off");
  const Run expected = run_on_one(1);
  REQUIRE(expected.graphs == 0);
  const ScopedVariable on(kGraphVariable, "on");
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Run run = run_on_one(seed);
    REQUIRE(run.graphs == kSteps - 1);  // The first step has no graph.
    REQUIRE(run == expected);
  }
}

// A sum over two GPUs with equal operands, which needs no data of the other GPU.
class Doubling final : public CudaKernel {
 public:
  Doubling(Context& context, int count)
      : context_(context),
        function_(context.compiled_function("test", virtual_gpu::test_kernels(), "add")),
        count_(count) {}
  void enqueue(CUstream stream, const LaunchArgs& args) override {
    cuda::launch(context_, stream, function_, elementwise_shape(context_, count_),
                 args.outputs[0].value(), args.inputs[0].value(), args.inputs[0].value(), count_);
  }

 private:
  Context& context_;
  Function function_;
  int count_;
};

// A communicator whose collectives can be captured, like those of NCCL.
class DoublingCommunicator final : public Communicator {
 public:
  explicit DoublingCommunicator(const std::vector<std::unique_ptr<Device>>& devices)
      : Communicator({.local_devices = static_cast<int64_t>(devices.size())}), devices_(devices) {}
  std::unique_ptr<Kernel> prepare(int64_t device, const Graph& graph, const Node& node) override {
    CHECK(node.op == &kAllReduceOp);
    return std::make_unique<Doubling>(context_of(*devices_[static_cast<size_t>(device)]),
                                      static_cast<int>(graph.type(node.outputs[0]).elements()));
  }
  void stop(const std::string&) override {}
  bool is_stopped() const override { return false; }
  std::string stalled(std::chrono::milliseconds) const override { return ""; }
  int64_t bytes_sent(int64_t) const override { return 0; }

 private:
  const std::vector<std::unique_ptr<Device>>& devices_;
};

// Two GPUs, with collectives that can or cannot be captured.
struct TwoGpus {
  TwoGpus(uint64_t seed, bool captured, Communication how, int layers = kLayers)
      : gpus(gpus_of(2, seed)),
        devices(make_cuda_devices(2, 1)),
        communicator(captured ? std::make_unique<DoublingCommunicator>(devices)
                              : make_cuda_communicator({.local_devices = 2})),
        training(Executor(pointers(devices), *communicator), Mesh({{"data", 2}}), how, layers) {}

  TestGpus gpus;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Communicator> communicator;
  Training training;
};

TEST_CASE("a graph of two streams orders communication and compute as their events do") {
  const Run expected = TwoGpus(1, false, Communication::kInline).training.run();
  REQUIRE(expected.graphs == 0);  // GPUs that synchronize on the host have no graphs.
  REQUIRE(TwoGpus(2, false, Communication::kOverlapped).training.run() == expected);
  for (uint64_t seed = 0; seed < 6; ++seed)
    for (const Communication how : {Communication::kInline, Communication::kOverlapped}) {
      const Run run = TwoGpus(seed, true, how).training.run();
      REQUIRE(run.graphs == 2 * (kSteps - 1));
      REQUIRE(run == expected);
    }
}

TEST_CASE("a replay waits until no parameter that it writes is still to be saved") {
  TwoGpus two(1, true, Communication::kOverlapped);
  for (int i = 0; i < 3; ++i) two.training.step(i);
  Executor& executor = two.training.executor();
  std::vector<Bytes> before(2, Bytes(kWidth * kWidth * 4)), now = before;
  std::mutex mutex;
  int64_t announced = 0;
  const auto read = [&](const Shard& shard, Bytes& to) {
    shard.memory.map(HostAccess::kRead, [&](std::span<std::byte> bytes) {
      std::copy(bytes.begin(), bytes.end(), to.begin());
    });
  };
  const std::vector<Shard> shards = executor.shards("w0");
  for (size_t i = 0; i < 2; ++i) read(shards[i], before[i]);
  executor.guard_writes([&](const DeviceBuffer& written) {
    for (size_t i = 0; i < 2; ++i) {
      if (written.device != shards[i].memory.device || written.address != shards[i].memory.address)
        continue;
      const std::lock_guard lock(mutex);
      read(shards[i], now[i]);
      REQUIRE(now[i] == before[i]);
      ++announced;
    }
  });
  const int64_t graphs = tessera_virtual_gpu_graph_launches();
  two.training.step(3);
  REQUIRE(tessera_virtual_gpu_graph_launches() == graphs + 2);
  REQUIRE(announced == 2);
  executor.guard_writes({});
  for (size_t i = 0; i < 2; ++i) {
    read(shards[i], now[i]);
    REQUIRE(now[i] != before[i]);
  }
}

TEST_CASE("programs of one executor have a graph each, and launches are still observed") {
  const TestGpus gpus(gpus_of(1, 3));
  const auto devices = make_cuda_devices(1, 1);
  Executor executor(*devices[0]);
  const Mesh mesh({{"data", 1}});
  CompileOptions options;
  options.mesh = mesh;
  Graph doubled, squared;
  for (Graph* graph : {&doubled, &squared}) {
    const AxisRules rules;
    const TraceScope trace(*graph, mesh, rules);
    const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"x=4\"]"));
    output("y", reduce_sum(graph == &doubled ? x + x : square(x)));
    executor.add_program(*graph, options);
  }
  executor.allocate();
  for (int i = 0; i < 6; ++i) {
    int64_t observed = 0;
    if (i == 4)
      executor.observe([&](const Graph&, const Node&, const LaunchTimes&) { ++observed; });
    for (const int program : {0, 1}) {
      executor.write_input(program, "x", encoded(DType::kF32, {1.0 * i, 0.0, 2.0, 1.0}));
      executor.run(program);
      const float expected =
          program == 0 ? 2.0f * static_cast<float>(i + 3) : static_cast<float>(i * i + 5);
      REQUIRE(executor.read_scalar(program, "y") == expected);
    }
    REQUIRE((observed > 0) == (i == 4));
    executor.observe({});
  }
  REQUIRE(tessera_virtual_gpu_graph_launches() == 2 * 4);
}

// Returns the error of the step in which the `fault`-th launch from now on fails.
std::string error_of_fault(Training& training, int fault) {
  tessera_virtual_gpu_plan_fault(fmt::format("launch_failure:{}", fault).c_str());
  return error_of([&] { training.step(kSteps); });
}

// Builds 40 products in sequence, of one kernel each.
Graph chain() {
  Graph graph;
  const Mesh mesh({{"data", 1}});
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  Tensor h = input("x", InputKind::kBatch, parse_type("f32[\"batch=8 embed=12\"]"));
  const Tensor w = input("w", InputKind::kParameter, parse_type("f32[\"embed=12 mlp=12\"]"));
  for (int i = 0; i < 40; ++i) {
    const PathScope path(fmt::format("layer{}", i));
    h = rename(einsum(h, w, over("embed")), "mlp", "embed");
  }
  output("y", h);
  return graph;
}

std::string error_in_chain(int launch, uint64_t seed) {
  const TestGpus gpus(gpus_of(1, seed));
  const auto devices = make_cuda_devices(1, 1);
  Executor executor(*devices[0]);
  CompileOptions options;
  options.mesh = Mesh({{"data", 1}});
  executor.add_program(chain(), options);
  executor.allocate();
  executor.write_input(0, "x", floats(kBatch * kWidth, 1));
  for (int i = 0; i < 2; ++i) executor.run(0);
  tessera_virtual_gpu_plan_fault(fmt::format("launch_failure:{}", launch).c_str());
  return error_of([&] { executor.run(0); });
}

TEST_CASE("a fault in a replay names up to 16 launches, and without a graph the exact one") {
  for (const int launch : {1, 16, 17, 25, 39, 40}) {
    INFO(launch);
    const int first = (launch - 1) / 16 * 16;
    const std::string error = error_in_chain(launch, static_cast<uint64_t>(launch));
    REQUIRE_THAT(error, Contains(fmt::format("[in layer{}]", first)));
    REQUIRE_THAT(error,
                 Contains("graph_test.cc:") && Contains("op 'einsum' or op 'einsum' (") &&
                     Contains(fmt::format("or one of the {} launches between, failed: GPU 0:",
                                          first == 32 ? 6 : 14)) &&
                     Contains("CUDA_ERROR_LAUNCH_FAILED) in a CUDA graph; the same command "
                              "with TESSERA_CUDA_GRAPH=off names the launch"));
    const ScopedVariable off(kGraphVariable, "off");
    REQUIRE_THAT(error_in_chain(launch, 5), Contains("op 'einsum' failed: GPU 0:") &&
                                                Contains(fmt::format("[in layer{}]", launch - 1)));
  }
}

// Counts of the faults that a step of two streams can have: all, those whose error names only one
// launch, and those whose error names only one collective. No error may name a wrong launch.
struct Faults {
  int all = 0, certain = 0, collectives = 0;
};
Faults faults_of_two_streams(int layers, uint64_t seed = 0) {
  Faults faults;
  for (int launch = 1;; ++launch) {
    TwoGpus two(seed + static_cast<uint64_t>(launch), true, Communication::kOverlapped, layers);
    for (int i = 0; i < 3; ++i) two.training.step(i);
    const std::string error = error_of_fault(two.training, launch);
    if (error == "no error") return faults;
    INFO(launch << ": " << virtual_gpu::fault() << "\n" << error);
    const auto says = [&](const char* text) { return error.find(text) != std::string::npos; };
    const bool in_collective = Contains("kernel add ").match(virtual_gpu::fault());
    REQUIRE(says("CUDA_ERROR_LAUNCH_FAILED"));
    ++faults.all;
    if (says(" launches between")) continue;
    REQUIRE(says("op 'all_reduce'") >= in_collective);
    if (says(" or op ")) continue;
    REQUIRE(says("op 'all_reduce'") == in_collective);
    ++faults.certain;
    faults.collectives += in_collective ? 1 : 0;
  }
}

TEST_CASE("a fault of one of two streams is not attributed to a launch of the other") {
  REQUIRE(faults_of_two_streams(kLayers).all > 40);
  const ScopedVariable off(kGraphVariable, "off");
  const Faults several = faults_of_two_streams(kLayers);
  REQUIRE(several.certain > several.all / 4);
  // The update waits for the only sum of gradients, and nothing runs beside it. The n-th launch of
  // both GPUs differs from run to run, so not every run has a fault in such a sum.
  int collectives = 0;
  for (uint64_t seed = 0; seed < 2000 && collectives < 2; seed += 100) {
    const Faults one = faults_of_two_streams(1, seed);
    REQUIRE(one.certain > one.collectives);
    collectives += one.collectives;
  }
  REQUIRE(collectives >= 2);
}

// A kernel that synchronizes, which no capture allows.
class Synchronizing final : public CudaKernel {
 public:
  explicit Synchronizing(Context& context) : context_(context) {}
  void enqueue(CUstream stream, const LaunchArgs&) override {
    context_.check(context_.driver().cuStreamSynchronize(stream), "waiting for a kernel");
  }

 private:
  Context& context_;
};

TEST_CASE("a stream that cannot be captured runs its work without a graph") {
  const TestGpus gpus;
  const auto device = std::move(make_cuda_devices(1, 1)[0]);
  const auto stream = device->make_stream(StreamUse::kCompute);
  const auto other = device->make_stream(StreamUse::kCommunication);
  const auto begun = device->make_event();
  Context& context = context_of(*device);
  Synchronizing refused(context);
  Doubling doubling(context, 4);
  const DeviceAddress value = device->allocate(16);
  stream->copy_from_host(value, encoded(DType::kF32, {1.0, 2.0, 3.0, 4.0}));
  const LaunchArgs args{.inputs = {&value, 1}, .outputs = {&value, 1}, .scratch = {}};
  REQUIRE(stream->capture([&] {
    stream->record(*begun);
    other->wait(*begun);
    other->launch(doubling, args);
    stream->launch(refused, {});
  }) == nullptr);
  // The captured work has not run. Both streams can be used and captured.
  REQUIRE(stream->capture([] { fail("no"); }) == nullptr);
  tessera_virtual_gpu_plan_fault("out_of_memory:1");
  REQUIRE(stream->capture([&] { stream->launch(doubling, args); }) == nullptr);
  stream->launch(refused, {});
  stream->synchronize();
  other->launch(doubling, args);
  other->synchronize();
  const auto captured = stream->capture([&] { stream->launch(doubling, args); });
  REQUIRE(captured != nullptr);
  for (int i = 0; i < 2; ++i) stream->launch(*captured, {});
  Bytes bytes(16);
  stream->copy_to_host(bytes, value);
  stream->synchronize();
  REQUIRE(bytes == encoded(DType::kF32, {8.0, 16.0, 24.0, 32.0}));
  // An exception during a capture is an error of the program, not of the driver.
  struct Unexpected {};
  REQUIRE_THROWS_AS(stream->capture([] { throw Unexpected(); }), Unexpected);
  stream->synchronize();
}

TEST_CASE("a GPU that has failed before a capture is an error, not a step without a graph") {
  const TestGpus gpus(gpus_of(1, 0));
  const auto device = std::move(make_cuda_devices(1, 1)[0]);
  const auto stream = device->make_stream(StreamUse::kCompute);
  const auto other = device->make_stream(StreamUse::kCopy);
  Doubling doubling(context_of(*device), 4);
  const DeviceAddress value = device->allocate(16);
  const LaunchArgs args{.inputs = {&value, 1}, .outputs = {&value, 1}, .scratch = {}};
  tessera_virtual_gpu_plan_fault("launch_failure:1");
  stream->launch(doubling, args);
  REQUIRE_THROWS_AS(stream->synchronize(), LaunchFailure);
  REQUIRE_THROWS_AS(other->capture([&] { other->launch(doubling, args); }), LaunchFailure);
}

}  // namespace
}  // namespace tessera::cuda
