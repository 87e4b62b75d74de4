// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/executor/inspected_device.h"

#include <span>
#include <string>
#include <vector>

#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/runtime/executor/executor.h"
#include "tests/support/catch.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

Type square() { return parse_type("f32[\"row=2 column=2\"]"); }

// A product and a sum, so that two launches run.
Graph product_and_sum() {
  Graph graph;
  const Mesh mesh;
  const AxisRules rules;
  const TraceScope trace(graph, mesh, rules);
  const Tensor x = input("x", InputKind::kBatch, square());
  const Tensor y = input("y", InputKind::kBatch, parse_type("f32[\"column=2 other=2\"]"));
  output("product", einsum(x, y, over("column")));
  output("sum", x + x);
  return graph;
}

std::vector<float> values_at(Stream& stream, DeviceAddress address, size_t count) {
  std::vector<float> values(count);
  stream.copy_to_host(std::as_writable_bytes(std::span(values)), address);
  stream.synchronize();
  return values;
}

// The calls of an inspector: operands before, results after each launch.
struct Seen {
  std::vector<std::vector<float>> before, after;
  std::vector<int64_t> indices;

  LaunchInspector inspector() {
    return {.before =
                [this](const InspectedLaunch& launch) {
                  indices.push_back(launch.index);
                  before.push_back(values_at(launch.stream, launch.inputs[0], 4));
                },
            .after =
                [this](const InspectedLaunch& launch) {
                  after.push_back(values_at(launch.stream, launch.outputs[0], 4));
                }};
  }
};

TEST_CASE("an inspector sees what each launch of an observed run reads and writes") {
  const auto device = make_test_device(1);
  Seen seen;
  const auto inspected = make_inspected_device(*device, seen.inspector());
  Executor executor(*inspected);
  const int program = executor.add_program(product_and_sum(), {});
  executor.allocate();
  const std::vector<float> x = {1, 2, 3, 4}, y = {1, 0, 0, 2};
  const auto write = [&] {
    executor.write_input(program, "x", std::as_bytes(std::span(x)));
    executor.write_input(program, "y", std::as_bytes(std::span(y)));
  };
  write();
  executor.run(program);
  REQUIRE(seen.before.empty());
  write();
  executor.observe([](const Graph&, const Node&, const LaunchTimes&) {});
  executor.run(program);
  executor.observe({});
  REQUIRE(seen.indices == std::vector<int64_t>{0, 1});
  REQUIRE(seen.before == std::vector<std::vector<float>>{x, x});
  REQUIRE_THAT(seen.after, Catch::Matchers::VectorContains(std::vector<float>{1, 4, 3, 8}) &&
                               Catch::Matchers::VectorContains(std::vector<float>{2, 4, 6, 8}));
  write();
  executor.run(program);
  REQUIRE(seen.before.size() == 2);
}

TEST_CASE("an inspector may change what a launch reads") {
  const auto device = make_test_device(1);
  const std::vector<float> other = {10, 10, 10, 10};
  const auto inspected =
      make_inspected_device(*device, {.before =
                                          [&](const InspectedLaunch& launch) {
                                            launch.stream.copy_from_host(
                                                launch.inputs[0], std::as_bytes(std::span(other)));
                                            launch.stream.synchronize();
                                          },
                                      .after = [](const InspectedLaunch&) {}});
  Executor executor(*inspected);
  const int program = executor.add_program(product_and_sum(), {});
  executor.allocate();
  executor.observe([](const Graph&, const Node&, const LaunchTimes&) {});
  executor.run(program);
  std::vector<float> sum(4);
  executor.read_output(program, "sum", std::as_writable_bytes(std::span(sum)));
  REQUIRE(sum == std::vector<float>{20, 20, 20, 20});
}

TEST_CASE("ops that an inspected device must not run count as ops without a kernel") {
  const auto device = make_test_device(1);
  const auto may_run = [](const OpDef& op) { return op.op_class != OpClass::kElementwise; };
  const auto inspected = make_inspected_device(*device, {}, may_run);
  for (const OpDef* op : all_ops())
    REQUIRE(inspected->has_kernel(*op) == (device->has_kernel(*op) && may_run(*op)));
}

}  // namespace
}  // namespace tessera
