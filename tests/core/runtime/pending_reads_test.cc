// SPDX-License-Identifier: Apache-2.0
// A checkpoint is consistent although it is written while the next step runs: no launch writes to
// bytes that the save still has to read.
#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/repeat.h"
#include "core/runtime/checkpoint/checkpoint_saver.h"
#include "core/runtime/executor/executor.h"
#include "tests/support/catch.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;

// A part of a device's memory.
DeviceBuffer part(int64_t begin, int64_t bytes) {
  return {nullptr, DeviceAddress(1000) + begin, bytes};
}

TEST_CASE("a write waits only for pending reads of the same bytes") {
  PendingReads reads;
  reads.await(part(0, 300));  // Nothing is pending.
  reads.begin({part(0, 100), part(100, 100)});
  reads.await(part(200, 100));  // No read of these bytes is pending.
  reads.await(part(50, 0));
  std::atomic<int> done = 0;
  // The value of `done` when the write may happen.
  const auto changer = [&](int64_t begin, int64_t size) {
    return std::async(std::launch::async, [&, begin, size] {
      reads.await(part(begin, size));
      return done.load();
    });
  };
  auto first = changer(99, 1);
  auto both = changer(99, 2);
  auto second = changer(199, 50);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  done = 1;
  reads.finish_next();
  REQUIRE(first.get() == 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  done = 2;
  reads.finish_next();
  REQUIRE(both.get() == 2);
  REQUIRE(second.get() == 2);
  const double waited = reads.take_waited_seconds();
  REQUIRE(waited > 0.0);
  REQUIRE(reads.take_waited_seconds() == 0.0);
}

TEST_CASE("a wait for a read is reported while it lasts") {
  using std::chrono::milliseconds;
  PendingReads reads;
  reads.begin({part(0, 10)});
  REQUIRE(reads.stalled(milliseconds(0)).empty());
  auto changer = std::async(std::launch::async, [&] { reads.await_all(); });
  while (reads.stalled(milliseconds(20)).empty()) std::this_thread::yield();
  REQUIRE(reads.stalled(milliseconds(20)) == "waits for a checkpoint that is being written");
  REQUIRE(reads.stalled(std::chrono::hours(1)).empty());
  reads.finish_all();
  changer.get();
  REQUIRE(reads.stalled(milliseconds(0)).empty());
}

TEST_CASE("a failed save releases all waiting writers") {
  PendingReads reads;
  reads.begin({part(0, 10)});
  auto changer = std::async(std::launch::async, [&] { reads.await_all(); });
  reads.finish_all();
  changer.get();
  reads.begin({part(0, 10)});
  reads.finish_all();
}

// Weights and a counter that a step updates, a stack that a loop updates in slices, and a read-only
// array.
Graph trace_updates() {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Type row = parse_type("f32[\"embed=64\"]");
  const Tensor w = input("w", InputKind::kParameter, row);
  const Tensor fixed = input("fixed", InputKind::kParameter, row);
  const Tensor stack = input("stack", InputKind::kState, parse_type("f32[\"layers=3 embed=64\"]"));
  const Tensor count = input("count", InputKind::kState, make_type(DType::kF32, {}));
  const RepeatResult layers =
      repeat("layers", 3, {w}, {stack},
             [&](Tensor, std::vector<Tensor> carried, std::vector<Tensor> slices) {
               return RepeatBody{{carried[0] + fixed}, {slices[0] + carried[0]}};
             });
  const PhaseScope update(Phase::kUpdate);
  graph.add_update("stack", layers.stacked[0].id());
  graph.add_update("w", layers.carries[0].id());
  graph.add_update("count", (count + 1.0).id());
  return graph;
}

TEST_CASE("every write of a program to parameters and state is announced before it happens") {
  const auto device = make_test_device(1);
  Executor executor(*device);
  const int program = executor.add_program(trace_updates(), {});
  executor.allocate();
  // The announced bytes of each array, which must still have their old values at that time.
  std::vector<Bytes> before;
  std::vector<std::vector<bool>> announced;
  for (const Buffer& buffer : executor.persistent()) {
    Bytes& bytes = before.emplace_back(static_cast<size_t>(buffer.type.bytes()));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 61);
    announced.emplace_back(bytes.size(), false);
    executor.write_state(buffer.name, bytes);
  }
  REQUIRE(before.size() == 4);
  const auto now = [&](size_t array) {
    Bytes bytes(before[array].size());
    executor.read_state(executor.persistent()[array].name, bytes);
    return bytes;
  };
  executor.guard_writes([&](const DeviceBuffer& written) {
    for (size_t a = 0; a < before.size(); ++a) {
      const DeviceAddress begin = executor.shards(executor.persistent()[a].name)[0].memory.address;
      const Bytes bytes = now(a);
      for (size_t i = 0; i < before[a].size(); ++i) {
        const DeviceAddress at = begin + static_cast<int64_t>(i);
        if (at < written.address || at >= written.address + written.bytes || announced[a][i])
          continue;
        REQUIRE(bytes[i] == before[a][i]);
        announced[a][i] = true;
      }
    }
  });
  executor.run(program);
  int64_t changed = 0;
  for (size_t a = 0; a < before.size(); ++a) {
    const Bytes bytes = now(a);
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == before[a][i]) continue;
      ++changed;
      REQUIRE(announced[a][i]);
    }
  }
  REQUIRE(changed > 300);
  const size_t fixed = 1;
  REQUIRE(executor.persistent()[fixed].name == "fixed");
  REQUIRE(std::count(announced[fixed].begin(), announced[fixed].end(), true) == 0);

  // write_state is announced, too.
  std::fill(announced[fixed].begin(), announced[fixed].end(), false);
  executor.write_state("fixed", Bytes(before[fixed].size()));
  REQUIRE(std::count(announced[fixed].begin(), announced[fixed].end(), true) ==
          std::ssize(before[fixed]));
}

}  // namespace
}  // namespace tessera
