// SPDX-License-Identifier: Apache-2.0
// Devices that hang, fail or are late: a run stops within the timeout with a report that names
// them, or continues with the same result.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>

#include "core/base/error.h"
#include "core/devices/cpu/stream.h"
#include "core/devices/reference/device.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/runtime/executor/executor.h"
#include "tests/support/catch.h"
#include "tests/support/communicator_trial.h"
#include "tests/support/test_device.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

// Sums x over the devices, three times.
Graph three_sums(const Mesh& mesh) {
  Graph graph;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const PathScope path("lm.loss");
  Tensor x = input("x", InputKind::kBatch, parse_type("f32[\"batch/data=64\"]"));
  for (int i = 0; i < 3; ++i) {
    const Tensor sum = reshard(reduce_sum(x), parse_type("f32[]"));
    x = x * sum;
  }
  output("y", reshard(reduce_sum(x), parse_type("f32[]")));
  return graph;
}

// three_sums on the devices of one process.
struct MeshRun {
  MeshRun(int64_t number, CommunicatorOptions options, Communication how = Communication::kInline) {
    const Mesh mesh({{"data", number}});
    options.local_devices = number;
    communicator = make_test_communicator(options);
    devices = make_test_devices(number, 1);
    executor.emplace(pointers(devices), *communicator);
    CompileOptions compile;
    compile.mesh = mesh;
    compile.communication = how;
    executor->add_program(three_sums(mesh), compile);
    executor->allocate();
    const std::vector<float> ones(64, 0.5f);
    executor->write_input(0, "x", std::as_bytes(std::span(ones)));
  }
  float result() {
    executor->run(0);
    return executor->read_scalar(0, "y");
  }

  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Communicator> communicator;
  std::optional<Executor> executor;
};

TEST_CASE("a device that fails ends the run at once with its own error, and no later run starts") {
  for (const Communication how : {Communication::kInline, Communication::kOverlapped}) {
    const auto fails = [](int64_t device, int64_t number) {
      if (device == 2 && number == 1) fail("device 2 lost its power supply");
    };
    MeshRun run(4, {.before_joining = fails}, how);
    const auto begin = steady_clock::now();
    REQUIRE_THAT(error_of([&] { run.result(); }), Catch::Equals("device 2 lost its power supply"));
    REQUIRE(seconds_since(begin) < 20.0);
    REQUIRE_THAT(error_of([&] { run.result(); }),
                 Catch::Contains("device 2 lost its power supply"));
  }
}

TEST_CASE(
    "a device that hangs is named with the collective it is missing from, its layer and line") {
  std::atomic<bool> release{false};
  MeshRun run(
      4, {.timeout = milliseconds(1000), .before_joining = [&](int64_t device, int64_t number) {
            while (device == 3 && number == 1 && !release)
              std::this_thread::sleep_for(milliseconds(1));
          }});
  const auto begin = steady_clock::now();
  std::thread releaser([&] {
    std::this_thread::sleep_for(milliseconds(1300));
    release = true;
  });
  const std::string error = error_of([&] { run.result(); });
  releaser.join();
  REQUIRE(seconds_since(begin) < 20.0);
  REQUIRE_THAT(error, Catch::Contains("has waited 1 s in collective 1, all_reduce over data "
                                      "[lm.loss, "));
  REQUIRE_THAT(error, Catch::Contains("communicator_faults_test.cc:"));
  REQUIRE_THAT(error, Catch::Contains("], for device 3, which has finished collective 0, "
                                      "all_reduce over data [lm.loss"));
  REQUIRE_THAT(error, Catch::Contains("device 1 waits in collective 1, all_reduce over data"));
}

TEST_CASE("a run stops although a device hangs forever") {
  // The device's thread outlives the test, so everything that it uses must too.
  static auto* const run =
      new MeshRun(2, {.timeout = milliseconds(300), .before_joining = [](int64_t device, int64_t) {
                        if (device == 1) std::this_thread::sleep_for(std::chrono::hours(1));
                      }});
  const auto begin = steady_clock::now();
  REQUIRE_THAT(error_of([&] { run->result(); }),
               Catch::Contains("for device 1, which has not run a collective yet"));
  REQUIRE(seconds_since(begin) < 20.0);
  REQUIRE_THAT(error_of([&] { run->result(); }),
               Catch::Contains("a device of this run hangs; nothing more can be run"));
  run->executor.reset();  // Leaks the objects that the thread uses.
}

TEST_CASE("stop wakes all waiting devices with an error that has its reason") {
  const CommunicatorTrial trial{Mesh({{"a", 3}}), {"a"}, "all_reduce", parse_type("f32[\"x=4\"]")};
  const auto communicators = make_communicators(3, 1);
  const auto begin = steady_clock::now();
  const auto errors =
      on_all_devices(communicators, [&](int64_t device, Communicator& communicator) {
        if (device == 2) {
          std::this_thread::sleep_for(milliseconds(50));
          communicator.stop("the user asked for it");
        }
        const Graph graph = trial_graph(trial, device);
        std::vector<float> x(4), y(4);
        const auto* in = reinterpret_cast<const std::byte*>(x.data());
        auto* out = reinterpret_cast<std::byte*>(y.data());
        host_kernel(*communicator.prepare(device, graph, graph.nodes().front()))
            .run({{&in, 1}, {&out, 1}, nullptr});
      });
  for (const std::string& error : errors)
    REQUIRE(error == "the run was stopped: the user asked for it");
  REQUIRE(seconds_since(begin) < 20.0);
}

// The error of each device if device `hangs` does not join its collective 1 in time.
std::vector<std::string> errors_with_hanging(int64_t hangs, int processes) {
  const CommunicatorTrial trial{Mesh({{"a", 4}}),
                                {"a"},
                                "reduce_scatter",
                                parse_type("f32[\"x=4 y=3\"]"),
                                {{key::kAxis, "x"}}};
  CommunicatorOptions options;
  options.timeout = milliseconds(1000);
  options.before_joining = [=](int64_t device, int64_t number) {
    if (device != hangs || number != 1) return;
    std::this_thread::sleep_for(milliseconds(1800));
    fail("released");
  };
  const auto communicators = make_communicators(4, processes, options);
  // Buffers must outlive unanswered messages.
  static std::vector<std::unique_ptr<Bytes>> kept;
  std::vector<Bytes*> buffers;
  for (int i = 0; i < 4; ++i) {
    kept.push_back(std::make_unique<Bytes>(4096));
    buffers.push_back(kept.back().get());
  }
  return on_all_devices(communicators, [&](int64_t device, Communicator& communicator) {
    const Graph graph = trial_graph(trial, device);
    Bytes& bytes = *buffers[static_cast<size_t>(device)];
    const std::byte* const in = bytes.data();
    std::byte* const out = bytes.data() + 1024;
    for (int i = 0; i < 3; ++i)
      host_kernel(*communicator.prepare(device, graph, graph.nodes().front()))
          .run({{&in, 1}, {&out, 1}, out + 1024});
  });
}

TEST_CASE("a device that hangs in another process is identified by the reports of the others") {
  const auto errors = errors_with_hanging(3, 2);
  REQUIRE(errors[3] == "released");
  // The other device of its process reports it.
  REQUIRE_THAT(errors[2], Catch::Contains("for device 3 (process 1, host host1), which has "
                                          "finished collective 0, reduce_scatter over a "
                                          "[lm.ffn, "));
  // Each device of process 0 waits for one of process 1; the report of process 1 says which hangs.
  for (const int device : {0, 1}) {
    INFO(errors[static_cast<size_t>(device)]);
    REQUIRE_THAT(errors[static_cast<size_t>(device)],
                 Catch::Contains("in collective 1, reduce_scatter over a [lm.ffn, "));
    REQUIRE_THAT(errors[static_cast<size_t>(device)],
                 Catch::Contains("process 1 (host host1) reports: device 2 (process 1, host host1) "
                                 "waits in collective 1,"));
    REQUIRE_THAT(errors[static_cast<size_t>(device)],
                 Catch::Contains("device 3 (process 1, host host1) has finished collective 0,"));
  }
}

TEST_CASE("a process that exited is reported with its host") {
  const auto errors = errors_with_hanging(3, 4);
  REQUIRE(errors[3] == "released");
  for (const int device : {0, 1, 2}) {
    INFO(errors[static_cast<size_t>(device)]);
    REQUIRE_THAT(errors[static_cast<size_t>(device)],
                 Catch::Contains("for device 3 (process 3, host host3)"));
    REQUIRE_THAT(errors[static_cast<size_t>(device)],
                 Catch::Contains("process 3 (host host3) does not answer"));
  }
}

// Sleeps for up to 3 ms before one collective of four, chosen by a hash of the arguments.
void delay(uint64_t seed, int64_t device, int64_t number) {
  const uint64_t mixed =
      (seed * 1000003 + static_cast<uint64_t>(device) * 7919 + static_cast<uint64_t>(number)) *
      0x9e3779b97f4a7c15u;
  if (mixed >> 62 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds((mixed >> 40) % 3000));
}

void check_delays(int first, int runs) {
  const CommunicatorTrial sum{
      Mesh({{"a", 2}, {"b", 4}}), {"a", "b"}, "all_reduce", parse_type("f32[\"x=333\"]")};
  const CommunicatorTrial gather{
      sum.mesh, {"b"}, "all_gather", parse_type("f32[\"x=3 y=37\"]"), {{key::kAxis, "y"}}};
  std::vector<Bytes> first_results;
  for (int seed = first; seed < first + runs; ++seed) {
    CommunicatorOptions options;
    options.timeout = milliseconds(60000);
    options.before_joining = [seed](int64_t device, int64_t number) {
      delay(static_cast<uint64_t>(seed), device, number);
    };
    const int processes = 1 << seed % 4;
    const auto communicators = make_communicators(8, processes, options);
    std::vector<Bytes> results(8);
    const auto errors =
        on_all_devices(communicators, [&](int64_t device, Communicator& communicator) {
          const Graph sums = trial_graph(sum, device), gathers = trial_graph(gather, device);
          const auto reduce = communicator.prepare(device, sums, sums.nodes().front());
          const auto collect = communicator.prepare(device, gathers, gathers.nodes().front());
          Bytes x(333 * 4), y(333 * 4), z(444 * 4), scratch(65536);
          for (size_t i = 0; i < 333; ++i) {
            const float value = std::sin(static_cast<float>(device * 333) + static_cast<float>(i));
            std::memcpy(x.data() + 4 * i, &value, 4);
          }
          for (int step = 0; step < 20; ++step) {
            const std::byte *a = x.data(), *b = y.data();
            std::byte *c = y.data(), *d = z.data();
            host_kernel(*reduce).run({{&a, 1}, {&c, 1}, scratch.data()});
            host_kernel(*collect).run({{&b, 1}, {&d, 1}, scratch.data()});
            std::memcpy(x.data(), z.data() + 4 * step, x.size());
          }
          results[static_cast<size_t>(device)] = z;
        });
    for (const std::string& error : errors) REQUIRE(error == "");
    if (first_results.empty()) first_results = results;
    REQUIRE(results == first_results);
  }
}

TEST_CASE("late devices do not change the bits of results") { check_delays(0, 8); }

TEST_CASE("200 runs with random delays give the same bits", "[full]") { check_delays(100, 200); }

}  // namespace
}  // namespace tessera
