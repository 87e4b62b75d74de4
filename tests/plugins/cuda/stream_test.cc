// SPDX-License-Identifier: Apache-2.0
// Tests devices of the kind "cuda" on virtual GPUs: memory, streams, events and times, failures,
// and messages if no GPU can be used.
#include "plugins/cuda/device/stream.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/check/op_cases.h"
#include "core/check/run_graph.h"
#include "core/devices/device.h"
#include "core/ops/optimizer.h"
#include "plugins/cuda/device/device.h"
#include "plugins/cuda/device/kernel.h"
#include "tasks/planner/hardware/hardware.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"
#include "tests/virtual_gpu/test_gpu.h"

namespace tessera::cuda {
namespace {

using Catch::Contains;
using virtual_gpu::TestGpus;

using Environment = std::map<std::string, std::string>;
constexpr uint64_t kSeeds = 6;

// A device on fresh virtual GPUs.
struct Fixture {
  explicit Fixture(const Environment& environment) : gpus(environment) {
    device = std::move(make_cuda_devices(1, 1)[0]);
  }
  explicit Fixture(uint64_t seed = 1)
      : Fixture(Environment{{"TESSERA_VIRTUAL_GPU_SEED", std::to_string(seed)}}) {}

  TestGpus gpus;
  std::unique_ptr<Device> device;
};

// outputs[0] = inputs[0] + 1, of kElements floats.
constexpr int kElements = 1000;
class AddOne final : public CudaKernel {
 public:
  explicit AddOne(Device& device)
      : context_(context_of(device)),
        function_(context_.compiled_function("test", virtual_gpu::test_kernels(), "add_one")) {}
  void enqueue(CUstream stream, const LaunchArgs& args) override {
    cuda::launch(context_, stream, function_, elementwise_shape(context_, kElements),
                 args.outputs[0].value(), args.inputs[0].value(), kElements);
  }

 private:
  Context& context_;
  Function function_;
};

void launch(Stream& stream, Kernel& kernel, DeviceAddress to, DeviceAddress from,
            LaunchTime* time = nullptr) {
  stream.launch(kernel, {.inputs = {&from, 1}, .outputs = {&to, 1}, .scratch = {}}, time);
}

DeviceAddress floats(Device& device) { return device.allocate(4 * kElements); }

std::vector<float> contents(DeviceAddress from, Stream& stream) {
  std::vector<float> values(kElements);
  stream.copy_to_host(std::as_writable_bytes(std::span(values)), from);
  stream.synchronize();
  return values;
}

TEST_CASE("a CUDA device's memory is zeroed, copied at any offset, and mapped") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Fixture fixture(seed);
    Device& device = *fixture.device;
    REQUIRE_THAT(device.description(),
                 Catch::StartsWith("cuda: GPU 0, Virtual GPU, compute capability 9.0, "));
    const int64_t before = device.available_bytes();
    const DeviceAddress memory = device.allocate(4096);
    REQUIRE(memory.value() % 64 == 0);
    REQUIRE(device.available_bytes() <= before - 4096);
    const auto stream = device.make_stream(StreamUse::kCompute);
    std::vector<std::byte> bytes(100, std::byte{7});
    stream->copy_from_host(memory + 5, bytes);
    bytes.assign(100, std::byte{9});  // The copy has its own bytes.
    std::vector<std::byte> back(102);
    stream->copy_to_host(back, memory + 4);
    stream->synchronize();
    REQUIRE(back.front() == std::byte{0});
    REQUIRE(back.back() == std::byte{0});
    REQUIRE(std::count(back.begin(), back.end(), std::byte{7}) == 100);
    device.map(memory + 5, 100, HostAccess::kUpdate, [](std::span<std::byte> all) {
      REQUIRE(all[99] == std::byte{7});
      all[0] = std::byte{1};
    });
    device.map(memory + 5, 2, HostAccess::kRead, [](std::span<const std::byte> first) {
      REQUIRE(first[0] == std::byte{1});
      REQUIRE(first[1] == std::byte{7});
    });
    device.release(memory, 4096);
    REQUIRE(device.available_bytes() == before);
    REQUIRE_FALSE(device.allocate(0).is_null());
  }
}

TEST_CASE("allocation on a CUDA device without enough memory returns null") {
  const Fixture fixture(Environment{{"TESSERA_VIRTUAL_GPU_MEMORY", "100000"}});
  REQUIRE(fixture.device->allocate(200000).is_null());
  REQUIRE_FALSE(fixture.device->allocate(50000).is_null());
}

TEST_CASE("a newer GPU with an older driver than the toolkit runs the kernels' PTX") {
  // There is no machine code for 13.0, and the driver supports PTX 8.4.
  const Fixture fixture(Environment{{"TESSERA_VIRTUAL_GPU_CAPABILITY", "130"},
                                    {"TESSERA_VIRTUAL_GPU_CUDA_VERSION", "12040"}});
  Context& context = context_of(*fixture.device);
  REQUIRE_NOTHROW(context.function("norm", "norm_column_sums"));
  const std::string newer = ".version 8.5\n.target sm_80\n";  // Newer than the PTX of our kernels.
  REQUIRE_THROWS_WITH(context.compiled_function("newer", newer, "f"),
                      Contains("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"));
}

TEST_CASE("an event orders the work of two CUDA streams, each time it is recorded") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Fixture fixture(seed);
    Device& device = *fixture.device;
    const auto producer = device.make_stream(StreamUse::kCompute);
    const auto consumer = device.make_stream(StreamUse::kCommunication);
    const auto event = device.make_event(), taken = device.make_event();
    AddOne kernel(device);
    const DeviceAddress value = floats(device), seen = floats(device);
    consumer->wait(*event);  // The event was never recorded.
    consumer->synchronize();
    for (int round = 1; round <= 5; ++round) {
      producer->wait(*taken);
      launch(*producer, kernel, value, value);
      producer->record(*event);
      consumer->wait(*event);
      launch(*consumer, kernel, seen, value);
      consumer->record(*taken);
    }
    REQUIRE(contents(seen, *consumer) == std::vector<float>(kElements, 6.0f));
    producer->synchronize();
  }
}

TEST_CASE("streams that nothing orders are found through the CUDA device") {
  const Fixture fixture;
  Device& device = *fixture.device;
  const auto first = device.make_stream(StreamUse::kCompute);
  const auto second = device.make_stream(StreamUse::kCommunication);
  AddOne kernel(device);
  const DeviceAddress value = floats(device), seen = floats(device);
  launch(*first, kernel, value, value);
  launch(*second, kernel, seen, value);
  const auto wait_for_both = [&] { first->synchronize(), second->synchronize(); };
  REQUIRE_THROWS_WITH(wait_for_both(), Contains("CUDA_ERROR_LAUNCH_FAILED"));
  REQUIRE_THAT(virtual_gpu::fault(), Contains("nothing orders the two"));
}

TEST_CASE("times of launches and waits are on the host's clock") {
  const Fixture fixture;
  Device& device = *fixture.device;
  const auto now = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  const auto stream = device.make_stream(StreamUse::kCompute);
  const auto event = device.make_event();
  AddOne kernel(device);
  const DeviceAddress value = floats(device);
  const int64_t begin = now();
  LaunchTime first, second, waited;
  launch(*stream, kernel, value, value, &first);
  launch(*stream, kernel, value, value, &second);
  stream->record(*event);
  stream->wait(*event, &waited);
  stream->synchronize();
  constexpr int64_t kPrecision = 1000000;  // Precision of the two clocks: 1 ms.
  REQUIRE(first.begin_ns >= begin - kPrecision);
  REQUIRE(first.end_ns > first.begin_ns);
  REQUIRE(second.begin_ns >= first.end_ns);
  REQUIRE(waited.begin_ns >= second.end_ns);
  REQUIRE(waited.end_ns >= waited.begin_ns);
  REQUIRE(waited.end_ns <= now() + kPrecision);
}

TEST_CASE("a failed launch ends its CUDA stream, and those that wait for it") {
  const Fixture fixture(Environment{{"TESSERA_VIRTUAL_GPU_SEED", "0"}});
  Device& device = *fixture.device;
  const auto failing = device.make_stream(StreamUse::kCompute);
  const auto waiting = device.make_stream(StreamUse::kCompute);
  const auto event = device.make_event();
  AddOne kernel(device);
  const DeviceAddress value = floats(device);
  tessera_virtual_gpu_plan_fault("launch_failure:1");
  launch(*failing, kernel, value, value);
  failing->record(*event);
  waiting->wait(*event);
  launch(*waiting, kernel, value, value);
  const std::string expected = "GPU 0: unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED)";
  for (int again = 0; again < 2; ++again) {
    REQUIRE_THROWS_WITH(failing->synchronize(), expected);
    REQUIRE_THROWS_WITH(waiting->synchronize(), expected);
  }
}

// Returns the launch that failed by the stream's error; -1 if the error names no launch.
int64_t failed_launch(Stream& stream) {
  try {
    stream.synchronize();
  } catch (const LaunchFailure&) {
    return stream.progress().done;
  }
  return -1;
}

TEST_CASE("of several launches the one that failed is found") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Fixture fixture(seed);
    const auto stream = fixture.device->make_stream(StreamUse::kCompute);
    AddOne kernel(*fixture.device);
    const DeviceAddress value = floats(*fixture.device);
    const auto launch_some = [&] {
      for (int i = 0; i < 5; ++i) launch(*stream, kernel, value, value);
    };
    launch_some();
    REQUIRE(failed_launch(*stream) == -1);
    tessera_virtual_gpu_plan_fault("launch_failure:4");
    try {  // Enqueuing a later launch may report the failure first.
      launch_some();
    } catch (const LaunchFailure&) {
      REQUIRE(stream->progress().done == 3);
    }
    REQUIRE(failed_launch(*stream) == 3);
  }
}

TEST_CASE("a launch that the driver refuses is found, and no other") {
  const Fixture fixture;
  const auto stream = fixture.device->make_stream(StreamUse::kCompute);
  AddOne kernel(*fixture.device);
  const DeviceAddress value = floats(*fixture.device);
  launch(*stream, kernel, value, value);
  class Refused final : public CudaKernel {
    void enqueue(CUstream, const LaunchArgs&) override { fail("too many threads"); }
  } refused;
  REQUIRE_THROWS_AS(launch(*stream, refused, value, value), LaunchRefused);
  REQUIRE_THROWS_WITH(launch(*stream, refused, value, value), "too many threads");
  REQUIRE(contents(value, *stream) == std::vector<float>(kElements, 1.0f));
}

TEST_CASE("a lost GPU is named") {
  const Fixture fixture;
  const auto stream = fixture.device->make_stream(StreamUse::kCompute);
  const DeviceAddress value = floats(*fixture.device);
  tessera_virtual_gpu_plan_fault("lost_device:1");
  std::vector<std::byte> bytes(8);
  REQUIRE_THROWS_WITH(stream->copy_to_host(bytes, value),
                      "GPU 0: copying from the GPU: CUDA-capable device(s) is/are busy or "
                      "unavailable (CUDA_ERROR_DEVICE_UNAVAILABLE)");
}

TEST_CASE("a stream whose work never ends does not block the end of its stream and device") {
  const auto begin = std::chrono::steady_clock::now();
  {
    const Fixture fixture;
    auto stream = fixture.device->make_stream(StreamUse::kCompute);
    const auto event = fixture.device->make_event();
    AddOne kernel(*fixture.device);
    const DeviceAddress value = floats(*fixture.device);
    tessera_virtual_gpu_plan_fault("hang:1");
    launch(*stream, kernel, value, value);
    stream->copy_from_host(value, std::vector<std::byte>(8));
    stream->record(*event);
    stream.reset();
    fixture.device->release(value, 4 * kElements);  // It does nothing, because it would wait.
    REQUIRE(virtual_gpu::fault() == "");
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  REQUIRE((seconds.count() > 2.0 && seconds.count() < 60.0));
}

// Returns a case with the operands of adam_update as inputs x0 to x7, and its results.
OpCase adam_case(const std::string& sizes, const AdamOptions& options) {
  const std::string slot = fmt::format("f32[\"{}\"]", sizes), scalar = "f32[\"\"]";
  return {.op = &kAdamUpdateOp,
          .inputs = {slot, slot, slot, slot, scalar, scalar, scalar, "bool[\"\"]"},
          .build = [options](const Tensors& in) -> Tensors {
            const AdamState next =
                adam_update({in[0], in[1], in[2]}, in[3], in[4], in[5], in[6], in[7], options);
            return {next.parameter, next.first_moment, next.second_moment};
          }};
}

// Returns the largest difference from the reference.
double adam_error(const OpCase& row, double count, bool apply, Device& device) {
  const Graph graph = traced_case(row, DType::kF32, Mesh::standard({1, 1, 1}));
  ReferenceInputs inputs = rounded(graph, sample_inputs(graph));
  for (double& moment : inputs.at("x2")) moment = std::abs(moment);
  inputs.at("x5") = {count};
  inputs.at("x7") = {apply ? 1.0 : 0.0};
  const auto got = run_graph(graph, inputs, device, {.mesh = Mesh::standard({1, 1, 1})});
  double worst = 0.0;
  for (const auto& [name, array] : evaluate(graph, inputs)) {
    REQUIRE(got.at(name).size() == array.values.size());
    for (size_t i = 0; i < array.values.size(); ++i)
      worst = std::max(worst, std::abs(got.at(name)[i] - array.values[i]));
  }
  return worst;
}

TEST_CASE("adam_update on a GPU agrees with the reference") {
  const AdamOptions options[] = {
      {.weight_decay = 0.1},
      {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .epsilon_root = 1e-4},
      {.bias_corrected_decay = true}};
  for (const uint64_t seed : {0, 1}) {
    const Fixture fixture(seed);
    for (const std::string sizes : {"row=3 column=5", "row=7 column=151", ""})
      for (const AdamOptions& each : options)
        for (const double count : {0.0, 3.0})
          for (const bool apply : {true, false})
            REQUIRE(adam_error(adam_case(sizes, each), count, apply, *fixture.device) < 1e-5);
  }
}

TEST_CASE("the peak of a GPU is that of its hardware file, by which MFU is predicted") {
  for (const auto& [capability, name] :
       {std::pair{"80", "a100"}, {"89", "rtx4090"}, {"90", "h100"}, {"100", "b200"}}) {
    CAPTURE(name);
    const TestGpus gpus(Environment{{"TESSERA_VIRTUAL_GPU_CAPABILITY", capability}});
    const auto devices = make_cuda_devices(1, 1);
    const PeakFlops peak = find_hardware(name, TESSERA_SOURCE_DIR "/hardware").peak_flops;
    REQUIRE(devices[0]->peak_flops(DType::kBF16) == Approx(peak.bf16).epsilon(1e-6));
    REQUIRE(devices[0]->peak_flops(DType::kF32) == Approx(peak.f32).epsilon(1e-6));
  }
}

TEST_CASE("more GPUs than there are, or ones too old, are an error") {
  {
    const TestGpus gpus(Environment{{"TESSERA_VIRTUAL_GPUS", "2"}});
    REQUIRE(make_cuda_devices(2, 1).size() == 2);
    REQUIRE_THROWS_WITH(make_cuda_devices(3, 1),
                        "--device=cuda: GPU 2 was asked for, but the driver shows 2; use fewer "
                        "--devices, or see CUDA_VISIBLE_DEVICES");
  }
  const TestGpus gpus(Environment{{"TESSERA_VIRTUAL_GPU_CAPABILITY", "70"}});
  REQUIRE_THROWS_WITH(make_cuda_devices(1, 1),
                      "--device=cuda: GPU 0 (Virtual GPU) has compute capability 7.0, expected "
                      "8.0 or newer");
}

// Runs `runexp --mode=selfcheck --device=cuda` on virtual GPUs, with these environment variables.
Outcome run_selfcheck(const std::string& environment) {
  const TemporaryDirectory folder;
  const std::string build = TESSERA_BINARY_DIR;
  return shell(folder.path(),
               fmt::format("env TESSERA_CUDA_DRIVER='{0}/lib/virtual_gpu/libcuda.so.1' {1} "
                           "'{0}/bin/runexp' --mode=selfcheck --device=cuda",
                           build, environment),
               std::chrono::minutes(10));
}

TEST_CASE("runexp says in one line why it cannot use a GPU") {
  struct Row {
    std::string environment, message;
  };
  const Row rows[] = {
      {"TESSERA_CUDA_DRIVER=/nowhere/libcuda.so.1",
       "this machine has no NVIDIA driver: /nowhere/libcuda.so.1"},
      {"TESSERA_VIRTUAL_GPU_CUDA_VERSION=12030",
       "the NVIDIA driver is for CUDA 12.3, expected 12.4 or newer; update it"},
      {"TESSERA_VIRTUAL_GPUS=0",
       "the NVIDIA driver cannot start: no CUDA-capable device is detected "
       "(CUDA_ERROR_NO_DEVICE)"},
      {"TESSERA_VIRTUAL_GPU_CAPABILITY=75", "has compute capability 7.5, expected 8.0 or newer"},
  };
  for (const Row& row : rows) {
    INFO(row.environment);
    const Outcome outcome = run_selfcheck(row.environment);
    INFO(outcome.errors);
    REQUIRE(outcome.exit_code == 2);
    REQUIRE(std::count(outcome.errors.begin(), outcome.errors.end(), '\n') == 1);
    REQUIRE_THAT(outcome.errors,
                 Catch::StartsWith("runexp: --device=cuda: ") && Contains(row.message));
  }
}

TEST_CASE("the self-check of a GPU passes", "[full]") {
  const Outcome outcome = run_selfcheck("TESSERA_VIRTUAL_GPU_SEED=0");
  INFO(outcome.out << outcome.errors);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE_THAT(outcome.out,
               Contains("checking cuda: GPU 0, Virtual GPU") && Contains("\npassed ("));
}

}  // namespace
}  // namespace tessera::cuda
