// SPDX-License-Identifier: Apache-2.0
// Step programs on meshes: all devices together compute what one device computes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <thread>

#include "core/base/error.h"
#include "core/check/run_graph.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/compile/cost.h"
#include "core/devices/reference/array.h"
#include "core/devices/reference/device.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/executor.h"
#include "core/runtime/executor/launch_trace.h"
#include "tests/support/catch.h"
#include "tests/support/communicator_trial.h"
#include "tests/support/test_device.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

// A step of gradient descent on a matrix product with FSDP and tensor parallelism, which uses every
// kind of collective that training uses.
Graph trace_step(const Mesh& mesh) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const PathScope path("lm");
  const Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch/data=8 embed=12\"]"));
  const Tensor w =
      input("w", InputKind::kParameter, parse_type("f32[\"embed/data=12 mlp/mdl=16\"]"));
  const Tensor v = input("v", InputKind::kState, parse_type("f32[\"mlp/mdl=16 out=6\"]"));
  const Tensor rate = input("rate", InputKind::kScalar, parse_type("f32[]"));
  const Tensor whole = reshard(w, parse_type("f32[\"embed=12 mlp/mdl=16\"]"));
  const Tensor h = silu(einsum(x, whole, over("embed")));
  const Tensor y = reshard(einsum(h, v, over("mlp")), parse_type("f32[\"batch/data=8 out=6\"]"));
  const Tensor loss = reshard(reduce_sum(square(y)), parse_type("f32[]"));
  output("loss", loss);
  output("y", y);
  const std::vector<Tensor> gradient = gradients(loss, {w, v});
  const PhaseScope update(Phase::kUpdate);
  graph.add_update("w", (w - gradient[0] * rate).id());
  graph.add_update("v", (v - gradient[1] * rate).id());
  return graph;
}

std::vector<double> values_of(const Type& type, int seed) {
  std::vector<double> values;
  for (int64_t i = 0; i < type.elements(); ++i)
    values.push_back(std::sin(static_cast<double>(seed * 1000 + i)));
  return values;
}

struct Outcome {
  float loss = 0.0f;
  std::vector<double> y, w, v;
};

Outcome take_steps(Executor& executor, const Graph& graph, const Mesh& mesh,
                   std::optional<Communication> communication = {}) {
  CompileOptions options;
  options.communication = communication;
  options.mesh = mesh;
  options.verify_passes = true;
  const int program = executor.add_program(graph, options);
  executor.allocate();
  const auto type = [&](const char* name) { return graph.type(graph.find_input(name)->value); };
  executor.write_state("w", encoded(DType::kF32, values_of(type("w"), 1)));
  executor.write_state("v", encoded(DType::kF32, values_of(type("v"), 2)));
  const Bytes batch = encoded(DType::kF32, values_of(type("x"), 3));
  const int64_t row_bytes = 12 * 4;
  for (int step = 0; step < 3; ++step) {
    Bytes rows;
    for (const RowRange& range : executor.input_rows(program, "x"))
      rows.insert(rows.end(), batch.begin() + range.begin * row_bytes,
                  batch.begin() + range.end * row_bytes);
    executor.write_input(program, "x", rows);
    executor.write_input(program, "rate", encoded(DType::kF32, {0.01}));
    executor.run(program);
  }
  Outcome outcome;
  outcome.loss = executor.read_scalar(program, "loss");
  if (executor.local_devices() < mesh.num_devices()) return outcome;
  Bytes y(8 * 6 * 4), w(12 * 16 * 4), v(16 * 6 * 4);
  executor.read_output(program, "y", y);
  executor.read_state("w", w);
  executor.read_state("v", v);
  outcome.y = decode_values(parse_type("f32[\"batch=8 out=6\"]"), y.data());
  outcome.w = decode_values(parse_type("f32[\"embed=12 mlp=16\"]"), w.data());
  outcome.v = decode_values(parse_type("f32[\"mlp=16 out=6\"]"), v.data());
  return outcome;
}

Outcome one_device() {
  const Mesh mesh({{"data", 1}, {"mdl", 1}});
  const auto device = make_test_device(1);
  Executor executor(*device);
  return take_steps(executor, trace_step(mesh), mesh);
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0.0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

constexpr double kRounding = 1e-5;  // For f32 sums of a few dozen terms near 1.

TEST_CASE("a step on a mesh agrees with one device within rounding") {
  const Outcome expected = one_device();
  for (const Mesh& mesh : {Mesh({{"data", 2}, {"mdl", 2}}), Mesh({{"data", 4}, {"mdl", 1}}),
                           Mesh({{"data", 4}, {"mdl", 2}}), Mesh({{"data", 1}, {"mdl", 4}})}) {
    INFO(mesh.text());
    const auto devices = make_test_devices(mesh.num_devices(), 1);
    const auto communicator = make_test_communicator({.local_devices = mesh.num_devices()});
    Executor executor(pointers(devices), *communicator);
    const Outcome got = take_steps(executor, trace_step(mesh), mesh);
    REQUIRE(got.loss == Approx(expected.loss).epsilon(kRounding));
    REQUIRE(difference(got.y, expected.y) < kRounding);
    REQUIRE(difference(got.w, expected.w) < kRounding);
    REQUIRE(difference(got.v, expected.v) < kRounding);
    // The plan predicts the bytes sent.
    const int64_t planned = 3 * bytes_per_step(collectives(*executor.plan(0).graph));
    int64_t sent = 0;
    for (int64_t device = 0; device < mesh.num_devices(); ++device)
      sent += communicator->bytes_sent(device);
    // The loss is a scalar, so its all-reduce cannot be divided evenly among the devices.
    REQUIRE(std::abs(sent - planned * mesh.num_devices()) <= 3 * 4 * 2 * mesh.num_devices());
  }
}

// The loss and each device's part of w after steps on eight devices in this many processes.
struct MeshOutcome {
  std::vector<float> losses;  // By process.
  std::vector<Bytes> parts;   // By device.
};

MeshOutcome steps_of(int processes, std::optional<Communication> communication) {
  const Mesh mesh({{"data", 4}, {"mdl", 2}});
  const Graph graph = trace_step(mesh);
  const auto communicators = make_communicators(8, processes);
  MeshOutcome outcome{std::vector<float>(static_cast<size_t>(processes)), std::vector<Bytes>(8)};
  std::vector<std::string> errors(static_cast<size_t>(processes));
  std::vector<std::thread> threads;
  for (size_t process = 0; process < communicators.size(); ++process) {
    threads.emplace_back([&, process] {
      try {
        Communicator& communicator = *communicators[process];
        const auto devices = make_test_devices(communicator.local_devices(), 1);
        Executor executor(pointers(devices), communicator);
        outcome.losses[process] = take_steps(executor, graph, mesh, communication).loss;
        for (const Shard& shard : executor.shards("w"))
          shard.memory.map(HostAccess::kRead, [&](std::span<const std::byte> bytes) {
            outcome.parts[static_cast<size_t>(shard.device)] = {bytes.begin(), bytes.end()};
          });
      } catch (const Error& error) {
        errors[process] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) REQUIRE(error == "");
  return outcome;
}

TEST_CASE("results are bitwise independent of the number of processes and of overlap") {
  const MeshOutcome one = steps_of(1, Communication::kInline);
  const auto check = [&](const MeshOutcome& other) {
    for (const float loss : other.losses) REQUIRE(loss == one.losses[0]);
    REQUIRE(other.parts == one.parts);
  };
  for (const int processes : {2, 4, 8}) check(steps_of(processes, {}));
  check(steps_of(1, Communication::kOverlapped));
  check(steps_of(2, Communication::kInline));
}

TEST_CASE("a trace shows what each device computes and communicates") {
  const Mesh mesh({{"data", 2}, {"mdl", 1}});
  const auto devices = make_test_devices(2, 1);
  const auto communicator = make_test_communicator({.local_devices = 2});
  Executor executor(pointers(devices), *communicator);
  LaunchTrace trace;
  executor.observe(trace.observer());
  take_steps(executor, trace_step(mesh), mesh, Communication::kOverlapped);
  const std::string json = trace.json();
  for (const char* part : {"\"device 0\"", "\"device 1\"", "\"compute\"", "\"communication\"",
                           "\"all_gather\"", "\"wait for all_gather\"", "\"reduce_scatter\""})
    REQUIRE_THAT(json, Catch::Contains(part));
}

TEST_CASE("shards list the part of an array that each device holds, and whether it owns the part") {
  const Mesh mesh({{"data", 2}, {"mdl", 2}});
  const auto devices = make_test_devices(4, 1);
  const auto communicator = make_test_communicator({.local_devices = 4});
  Executor executor(pointers(devices), *communicator);
  CompileOptions options;
  options.mesh = mesh;
  executor.add_program(trace_step(mesh), options);
  executor.allocate();
  std::vector<double> counted(16 * 6);
  std::iota(counted.begin(), counted.end(), 0.0);
  executor.write_state("v", encoded(DType::kF32, counted));
  const std::vector<Shard> shards = executor.shards("v");
  REQUIRE(shards.size() == 4);
  for (int64_t device = 0; device < 4; ++device) {
    const Shard& shard = shards[static_cast<size_t>(device)];
    REQUIRE(shard.device == device);
    REQUIRE(shard.block == Region{{device % 2 * 8, 0}, {8, 6}});
    REQUIRE(shard.owned == (device < 2));  // Devices along data hold equal blocks.
    shard.memory.map(HostAccess::kRead, [&](std::span<const std::byte> bytes) {
      REQUIRE(decode_values(parse_type("f32[\"mlp=8 out=6\"]"), bytes.data()).at(0) ==
              static_cast<double>(device % 2 * 8 * 6));
    });
  }
  const auto buffer = std::find_if(executor.persistent().begin(), executor.persistent().end(),
                                   [](const Buffer& each) { return each.name == "w"; });
  REQUIRE(buffer->type.text_sized() == "f32[\"embed/data=12 mlp/mdl=16\"]");
  REQUIRE(executor.shards("w")[0].block.shape == std::vector<int64_t>{6, 8});
}

TEST_CASE("a plan without devices is the plan of the first device") {
  const Mesh mesh({{"data", 4}, {"mdl", 2}});
  const auto device = make_test_device(1);
  Executor planning = Executor::for_planning(*device);
  CompileOptions options;
  options.mesh = mesh;
  planning.add_program(trace_step(mesh), options);

  const auto devices = make_test_devices(8, 1);
  const auto communicator = make_test_communicator({.local_devices = 8});
  Executor executor(pointers(devices), *communicator);
  executor.add_program(trace_step(mesh), options);
  executor.allocate();
  REQUIRE(planning.arena_bytes() == executor.arena_bytes());
  REQUIRE(planning.plan(0).launches.size() == executor.plan(0).launches.size());
  REQUIRE(planning.plan(0).use.peak == executor.plan(0).use.peak);
}

TEST_CASE("a mesh with another number of devices is an error that names a remedy") {
  const auto device = make_test_device(1);
  Executor executor(*device);
  CompileOptions options;
  options.mesh = Mesh({{"data", 2}, {"mdl", 2}});
  REQUIRE_THAT(error_of([&] { executor.add_program(trace_step(options.mesh), options); }),
               Catch::Contains("the mesh (data=2 mdl=2) has 4 devices, but the run has 1; set "
                               "ici_mesh_shape or --devices"));
}

TEST_CASE("a wrong number of rows is an error with both numbers") {
  const Mesh mesh({{"data", 2}, {"mdl", 1}});
  const auto devices = make_test_devices(2, 1);
  const auto communicator = make_test_communicator({.local_devices = 2});
  Executor executor(pointers(devices), *communicator);
  CompileOptions options;
  options.mesh = mesh;
  executor.add_program(trace_step(mesh), options);
  executor.allocate();
  REQUIRE_THAT(error_of([&] { executor.write_input(0, "x", Bytes(12)); }),
               Catch::Contains("x is f32[\"batch/data=8 embed=12\"], of which this process takes "
                               "8 rows, 384 bytes; got 12"));
}

}  // namespace
}  // namespace tessera
