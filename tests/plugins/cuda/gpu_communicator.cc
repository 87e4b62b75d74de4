// SPDX-License-Identifier: Apache-2.0
#include "tests/plugins/cuda/gpu_communicator.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/base/error.h"
#include "core/devices/reference/array.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/transports.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

constexpr int kSteps = 3;

Bytes filled(int64_t bytes) { return Bytes(static_cast<size_t>(bytes), std::byte{0xa5}); }

// Returns operands that differ from step to step.
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

bool has_rounded_sums(const CommunicatorTrial& trial) {
  const bool reduces = trial.op == "all_reduce" || trial.op == "reduce_scatter";
  return reduces && is_floating(trial.in.dtype) &&
         trial.attributes.get_or(key::kReduction, "sum") == "sum";
}

// Requires equality within rounding: each addition rounds a sum of operands of up to kSteps.
void require_close(const CommunicatorTrial& trial, const Bytes& got, const Bytes& expected) {
  const DType dtype = trial.in.dtype;
  const double epsilon = dtype == DType::kBF16 ? 0x1p-8 : dtype == DType::kF32 ? 0x1p-23 : 0x1p-52;
  const auto ranks = static_cast<double>(trial.mesh.size_along(trial.mesh_axes));
  const std::vector<double> a = decode_values(trial.out(), got.data()),
                            b = decode_values(trial.out(), expected.data());
  for (size_t i = 0; i < a.size(); ++i)
    REQUIRE(std::abs(a[i] - b[i]) <= kSteps * ranks * ranks * epsilon);
}

}  // namespace

std::string fake_nccl_file() { return TESSERA_BINARY_DIR "/lib/virtual_gpu/fake_nccl.so"; }

std::map<std::string, std::string> collectives_environment(const std::string& collectives) {
  return {{kCollectivesVariable, collectives}, {"TESSERA_NCCL", fake_nccl_file()}};
}

namespace {

std::map<std::string, std::string> gpus_environment(const std::string& collectives, int64_t count,
                                                    uint64_t seed) {
  auto environment = collectives_environment(collectives);
  environment["TESSERA_VIRTUAL_GPUS"] = std::to_string(count);
  environment["TESSERA_VIRTUAL_GPU_SEED"] = std::to_string(seed);
  return environment;
}

}  // namespace

Gpus::Gpus(const std::string& collectives, int64_t count, uint64_t seed,
           const CommunicatorOptions& options, int processes)
    : gpus(gpus_environment(collectives, count, seed)) {
  devices = make_cuda_devices(count, 1);
  communicators.resize(static_cast<size_t>(processes));
  const auto transports = make_loopback(processes);
  std::vector<std::thread> threads;  // The processes connect to each other.
  for (size_t process = 0; process < communicators.size(); ++process)
    threads.emplace_back([&, process] {
      CommunicatorOptions own = options;
      own.local_devices = count / processes;
      if (processes > 1) own.transport = transports[process];
      communicators[process] = make_cuda_communicator(own);
    });
  for (std::thread& thread : threads) thread.join();
}

std::vector<Bytes> steps_of_device(const CommunicatorTrial& trial, int64_t number, Device& device,
                                   Communicator& communicator,
                                   const std::vector<Bytes>& operand_of_step) {
  const Graph graph = trial_graph(trial, number);
  const Node& node = graph.nodes().front();
  const auto kernel = communicator.prepare(number, graph, node);
  const int64_t scratch_bytes = kernel->scratch_bytes();
  CHECK(scratch_bytes == cuda_collective_needs(graph, node).scratch_bytes);
  const auto compute = device.make_stream(StreamUse::kCompute);
  const auto communication = device.make_stream(StreamUse::kCommunication);
  const auto written = device.make_event(), done = device.make_event();
  const int64_t in_bytes = trial.in.bytes(), out_bytes = trial.out().bytes();
  const DeviceAddress in = device.allocate(in_bytes), scratch = device.allocate(scratch_bytes);
  const DeviceAddress out = trial.in_place ? in : device.allocate(out_bytes);
  std::vector<Bytes> results(operand_of_step.size(), filled(out_bytes));
  communicator.begin_run(number);
  for (size_t step = 0; step < operand_of_step.size(); ++step) {
    compute->copy_from_host(in, operand_of_step[step]);
    compute->record(*written);
    communication->wait(*written);
    communication->launch(*kernel, {.inputs = {&in, 1}, .outputs = {&out, 1}, .scratch = scratch});
    communication->record(*done);
    compute->wait(*done);
    compute->copy_to_host(results[step], out);
  }
  communicator.end_run(number, 0);
  compute->synchronize();
  communication->synchronize();
  communicator.require_running();
  device.release(in, in_bytes);
  device.release(scratch, scratch_bytes);
  if (!trial.in_place) device.release(out, out_bytes);
  return results;
}

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

std::vector<std::string> errors_of(const CommunicatorTrial& trial, Gpus& gpus,
                                   const std::vector<bool>& joins) {
  const Bytes operand(static_cast<size_t>(trial.in.bytes()));
  return on_all_devices(gpus.communicators, [&](int64_t number, Communicator& communicator) {
    const auto device = static_cast<size_t>(number);
    const std::vector<Bytes> operands(joins[device] ? 1 : 0, operand);
    steps_of_device(trial, number, *gpus.devices[device], communicator, operands);
  });
}

void check_trial(const CommunicatorTrial& trial, Gpus& gpus) {
  INFO(trial.text());
  const StepBytes operands = operands_of(trial);
  const auto sent = [&](int64_t device) {
    const auto process = static_cast<size_t>(device / gpus.communicator().local_devices());
    return gpus.communicators[process]->bytes_sent(device);
  };
  std::vector<int64_t> sent_before;
  for (int64_t i = 0; i < trial.mesh.num_devices(); ++i) sent_before.push_back(sent(i));
  const StepBytes results = run_steps(trial, gpus, operands);
  const auto on_cpu = make_communicators(trial.mesh.num_devices(), 1);
  const bool rounds = has_rounded_sums(trial) && chosen_collectives() == Collectives::kNccl;
  for (size_t step = 0; step < operands.size(); ++step) {
    const std::vector<Bytes> expected = run_trial(trial, on_cpu, operands[step]);
    if (!rounds) REQUIRE(results[step] == expected);
    for (size_t device = 0; rounds && device < expected.size(); ++device)
      require_close(trial, results[step][device], expected[device]);
  }
  if (rounds) REQUIRE(run_steps(trial, gpus, operands) == results);
  const int64_t runs = rounds ? 2 : 1;
  for (int64_t i = 0; i < trial.mesh.num_devices(); ++i)
    REQUIRE(sent(i) - sent_before[static_cast<size_t>(i)] == runs * on_cpu[0]->bytes_sent(i));
}

}  // namespace tessera::cuda
