// SPDX-License-Identifier: Apache-2.0
// Tests reduce_sum and reduce_max on the virtual GPU against the reference interpreter.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/check/op_cases.h"
#include "core/ops/fp8.h"
#include "core/ops/gather.h"
#include "core/ops/reduce.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/launched_graph.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

using Tensors = std::vector<Tensor>;

Graph reduced_graph(const std::string& type, const Application& apply) {
  Trial trial(Mesh(), {type});
  trial.graph().add_output("y", apply(trial.inputs()).id());
  return trial.graph();
}

// Returns a difference from the reference, or between aligned and unaligned addresses (16 bytes).
std::string reduced_difference(const TestDevices& devices, const std::string& type,
                               const Application& apply, Tolerance tolerance) {
  const Graph graph = reduced_graph(type, apply);
  const ReferenceInputs inputs = random_inputs(graph, 7);
  const GraphResults aligned = run_launched(*devices.gpu, graph, inputs);
  const std::string found =
      element_difference(aligned, rounded_reference(graph, inputs), tolerance);
  if (!found.empty()) return found;
  return element_difference(run_launched(*devices.gpu, graph, inputs, {.shift = 1}), aligned);
}

void check_over(const TestDevices& devices, const std::string& axes,
                const std::vector<std::string>& choices) {
  for (const char* dtype : {"f32", "bf16"}) {
    const std::string type = fmt::format("{}[\"{}\"]", dtype, axes);
    const double rounding = dtype[0] == 'f' ? 1e-5 : 8e-3;
    REQUIRE(reduced_difference(devices, type,
                               [](const Tensors& in) { return absolute_maximum(in[0]); },
                               {}) == "");
    for (const std::string& over : choices) {
      INFO(type << " over " << over);
      REQUIRE(reduced_difference(devices, type,
                                 [&](const Tensors& in) { return reduce_sum(in[0], over); },
                                 {.relative = rounding, .absolute = 1e-3}) == "");
      REQUIRE(reduced_difference(devices, type,
                                 [&](const Tensors& in) { return reduce_max(in[0], over); },
                                 {}) == "");
    }
  }
}

TEST_CASE("op cases of reductions on the GPU agree with the reference") {
  const TestDevices devices;
  for (const OpCase& row : all_op_cases()) {
    if (row.op != &kReduceSumOp && row.op != &kReduceMaxOp && row.op != &kAbsoluteMaximumOp)
      continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      INFO(case_name(row, dtype));
      REQUIRE(check_case(row, dtype, *devices.gpu).mismatch == "");
    }
  }
}

TEST_CASE("sums and maxima over any axes on the GPU") {
  const TestDevices devices;
  const std::vector<std::string> all = {"a",   "b",   "c",   "d",     "a b",   "b c",
                                        "c d", "a c", "b d", "a b c", "b c d", "a b c d"};
  check_over(devices, "a=3 b=5 c=7 d=2", all);
  check_over(devices, "a=4 b=3 c=2 d=40", all);
  check_over(devices, "a=1 b=1 c=1 d=1", all);
}

// Covers one block per result, and several blocks per result with a second launch; with a tail
// after the 16-byte accesses.
TEST_CASE("long rows on the GPU") {
  const TestDevices devices;
  check_over(devices, "a=3 b=5000", {"b"});
  check_over(devices, "a=3 b=9001", {"b"});
  check_over(devices, "a=2 b=40000", {"b", "a b"});
  check_over(devices, "a=70003", {"a"});
  check_over(devices, "a=20 b=3 c=1024", {"a c"});
  check_over(devices, "a=700 b=2 c=33", {"a c"});
}

TEST_CASE("long columns on the GPU") {
  const TestDevices devices;
  check_over(devices, "a=300 b=72", {"a"});
  check_over(devices, "a=9000 b=3", {"a"});
  check_over(devices, "a=600 b=264", {"a"});
  check_over(devices, "a=40 b=20 c=50 d=8", {"b", "a c", "a b c"});
}

// Covers a sum over two passes, and an embedding's gradient, whose sort counts in many blocks.
TEST_CASE("sums on the GPU have the same bits in any order of blocks and warps") {
  std::vector<GraphResults> results;
  for (const uint64_t seed : {1, 2, 3}) {
    const TestDevices devices{.gpus = virtual_gpu::TestGpus(seed)};
    Trial trial(Mesh(), {"f32[\"n=6000 e=8\"]", "i32[\"n=6000\"]"});
    const Tensors& in = trial.inputs();
    trial.graph().add_output("rows", reduce_sum(in[0], "n e").id());
    trial.graph().add_output("columns", reduce_sum(in[0], "n").id());
    trial.graph().add_output("scattered", scatter_add(in[0], in[1], {"v", 50, {}}).id());
    results.push_back(
        run_launched(*devices.gpu, trial.graph(), random_inputs(trial.graph(), 3, 50)));
    REQUIRE(element_difference(results.back(), results.front()) == "");
  }
}

TEST_CASE("a maximum with NaN is NaN, and that of negative infinities is one") {
  const TestDevices devices;
  const double infinity = std::numeric_limits<double>::infinity();
  const Graph graph =
      reduced_graph("f32[\"a=2 b=3\"]", [](const Tensors& in) { return reduce_max(in[0], "b"); });
  const ReferenceInputs inputs = {
      {graph.inputs()[0].name, {1, std::nan(""), 2, -infinity, -infinity, -infinity}}};
  const std::vector<double> got = run_launched(*devices.gpu, graph, inputs).at("y");
  REQUIRE(std::isnan(got[0]));
  REQUIRE(got[1] == -infinity);
  const Graph absolute =
      reduced_graph("f32[\"a=3\"]", [](const Tensors& in) { return absolute_maximum(in[0]); });
  const auto of = [&](const std::vector<double>& values) {
    return run_launched(*devices.gpu, absolute, {{absolute.inputs()[0].name, values}}).at("y")[0];
  };
  REQUIRE(std::isnan(of({1, std::nan(""), -2})));
  REQUIRE(of({1, -infinity, 2}) == infinity);
  REQUIRE(of({0, -3, 2}) == 3);
}

}  // namespace
}  // namespace tessera::cuda
