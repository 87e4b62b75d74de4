// SPDX-License-Identifier: Apache-2.0
// Sends and receives between devices that run different programs, in one process and in several.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/devices/cpu/stream.h"
#include "core/devices/reference/device.h"
#include "core/ops/send.h"
#include "core/runtime/comm/collective_info.h"
#include "tests/support/catch.h"
#include "tests/support/communicator_trial.h"
#include "tests/support/test_device.h"
#include "tests/support/transfer_trial.h"

namespace tessera {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;

// Calls run(trial) with 2, 3 and 4 stages.
template <typename Run>
void each_trial(const Run& run) {
  for (const Communication how : {Communication::kInline, Communication::kOverlapped})
    for (const int64_t stages : {2, 3, 4})
      for (const int64_t data : {1, 2}) run(TransferTrial{stages, data, 5, how});
}

TEST_CASE("values pass through stages whose programs differ") {
  each_trial([](const TransferTrial& trial) {
    const int64_t devices = trial.mesh().num_devices();
    std::vector<std::unique_ptr<Communicator>> communicators;
    communicators.push_back(make_test_communicator({.local_devices = devices}));
    check_transfers(trial, make_test_devices(devices, 1), communicators);
  });
}

TEST_CASE("values pass through stages in several processes") {
  each_trial([](const TransferTrial& trial) {
    const int64_t devices = trial.mesh().num_devices();
    for (const int64_t each : {int64_t{1}, trial.data, devices / 2}) {  // In one process.
      if (devices % each != 0) continue;
      const auto communicators = make_communicators(devices, static_cast<int>(devices / each));
      check_transfers(trial, make_test_devices(devices, 1), communicators);
    }
  });
}

// One of the two sides of a transfer between a pair of devices.
struct Side {
  std::string slot = "h";
  Type type = parse_type("f32[\"x=4\"]");
  bool sends = false;
};

Graph graph_of(const Side& side, int64_t self, int64_t other) {
  Graph graph;
  const int64_t peer = self < other ? 1 : 0;
  Node node;
  if (side.sends) {
    node = send_node(graph.add_input("x", InputKind::kBatch, side.type), "stage", peer, side.slot);
  } else {
    node = receive_node(side.type, "stage", peer, side.slot);
  }
  node.attributes.set(key::kGroup,
                      std::vector<int64_t>{std::min(self, other), std::max(self, other)});
  node.attributes.set(key::kIndex, int64_t{self > other});
  node.attributes.set(key::kFrom, side.sends ? self : other);
  node.attributes.set(key::kTo, side.sends ? other : self);
  node.path = "lm.layers";
  graph.add_node(std::move(node),
                 side.sends ? std::vector<SharedType>{} : std::vector<SharedType>{side.type});
  return graph;
}

// Sends `x`, or receives into it.
void run_side(const Side& side, int64_t self, int64_t other, Communicator& communicator, Bytes& x) {
  const Graph graph = graph_of(side, self, other);
  const auto kernel = communicator.prepare(self, graph, graph.nodes().front());
  const std::byte* const in = x.data();
  std::byte* const out = x.data();
  const size_t operands = side.sends ? 1 : 0;
  host_kernel(*kernel).run({{&in, operands}, {&out, 1 - operands}, nullptr});
}

TEST_CASE("transfers of any size arrive, also none") {
  for (const int processes : {1, 2}) {
    const auto communicators = make_communicators(2, processes);
    for (const int64_t elements : {0, 1, 3000000}) {
      const Type type = make_type(DType::kF32, {{"x", elements, {}}});
      std::vector<Bytes> values(2, Bytes(static_cast<size_t>(type.bytes())));
      for (size_t i = 0; i < values[1].size(); ++i)
        values[1][i] = static_cast<std::byte>(i * 2654435761u >> 13);
      const auto errors =
          on_all_devices(communicators, [&](int64_t device, Communicator& communicator) {
            run_side({"h", type, device == 1}, device, 1 - device, communicator,
                     values[static_cast<size_t>(device)]);
          });
      for (const std::string& error : errors) REQUIRE(error == "");
      REQUIRE(values[0] == values[1]);
    }
    REQUIRE(communicators[0]->bytes_sent(0) == 0);
    REQUIRE(communicators.back()->bytes_sent(1) == 4 * 3000001);
  }
}

TEST_CASE("only two sides of the same transfer are the same collective") {
  const auto signature = [](const Side& side, int64_t self) {
    const Graph graph = graph_of(side, self, 1 - self);
    return read_collective(graph, graph.nodes().front()).signature;
  };
  const Type type = Side().type, other = parse_type("f32[\"x=5\"]");
  const std::string sent = signature({"h", type, true}, 0);
  REQUIRE(sent == "a transfer of h, f32[\"x=4\"], from device 0 to device 1");
  REQUIRE(signature({"h", type, false}, 1) == sent);
  REQUIRE(signature({"h", other, false}, 1) != sent);
  REQUIRE(signature({"g", type, false}, 1) != sent);
  REQUIRE(signature({"h", type, true}, 1) != sent);
}

TEST_CASE("a transfer whose other side is missing names both devices") {
  for (const int processes : {1, 2}) {
    for (const int64_t joins : {0, 1}) {
      const auto communicators = make_communicators(2, processes, {.timeout = milliseconds(500)});
      // The buffer must outlive an unanswered message.
      static std::vector<std::unique_ptr<Bytes>> kept;
      kept.push_back(std::make_unique<Bytes>(64));
      const auto errors = on_all_devices(communicators, [&](int64_t device,
                                                            Communicator& communicator) {
        if (device == joins)
          run_side({"h", Side().type, device == 0}, device, 1 - device, communicator, *kept.back());
      });
      const std::string& error = errors[static_cast<size_t>(joins)];
      REQUIRE_THAT(error,
                   Contains(fmt::format("device {}", joins)) &&
                       Contains("has waited 0.5 s in collective 0, ") &&
                       Contains(joins == 0 ? "send of h to device 1 over stage [lm.layers]"
                                           : "receive of h from device 0 over stage [lm.layers]") &&
                       Contains(fmt::format("for device {}", 1 - joins)));
    }
  }
}

TEST_CASE("pairs of devices do not wait for other pairs") {
  std::atomic<bool> passed{false};
  CommunicatorOptions options;
  options.before_joining = [&](int64_t device, int64_t) {
    while (device == 0 && !passed) std::this_thread::sleep_for(milliseconds(1));
  };
  for (const int processes : {1, 2}) {
    passed = false;
    const auto communicators = make_communicators(4, processes, options);
    const auto errors =
        on_all_devices(communicators, [&](int64_t device, Communicator& communicator) {
          Bytes x(16);
          run_side({"h", Side().type, device % 2 == 0}, device, device ^ 1, communicator, x);
          if (device == 3) passed = true;
        });
    for (const std::string& error : errors) REQUIRE(error == "");
  }
}

}  // namespace
}  // namespace tessera
