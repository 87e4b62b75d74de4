// SPDX-License-Identifier: Apache-2.0
// Tests argsort, top_k and cumulative_sum on the virtual GPU against the reference interpreter.
#include "core/ops/order.h"

#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/check/op_cases.h"
#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/cpu_graph.h"
#include "tests/support/launched_graph.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

using Tensors = std::vector<Tensor>;

// Returns the first difference from the reference, on these values repeated, or on random ones.
std::string difference(const TestDevices& devices, const std::string& type,
                       const Application& apply, Tolerance tolerance = {0.0, 0.0},
                       const std::vector<double>& values = {}, const OperandPlace& place = {}) {
  Trial trial(Mesh(), {type});
  trial.graph().add_output("y", apply(trial.inputs()).id());
  const Graph& graph = trial.graph();
  ReferenceInputs inputs = random_inputs(graph, 7, 50);
  std::vector<double>& x = inputs.begin()->second;
  for (size_t i = 0; i < x.size() && !values.empty(); ++i) x[i] = values[i % values.size()];
  return element_difference(run_launched(*devices.gpu, graph, inputs, place),
                            rounded_reference(graph, inputs), tolerance);
}

const std::vector<std::string> kDTypes = {"f32", "bf16", "i32"};

TEST_CASE("op cases of orders on the GPU agree with the reference") {
  const TestDevices devices;
  for (const OpCase& row : all_op_cases()) {
    if (family_of(row) != "order") continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      if (dtype != DType::kF32 && !takes_floats(row)) continue;
      INFO(case_name(row, dtype));
      REQUIRE(check_case(row, dtype, *devices.gpu).mismatch == "");
    }
  }
}

// Covers rows of one element, less than a warp, several elements per thread, and larger than shared
// memory.
TEST_CASE("argsort on the GPU: rows of any size, in shared and in global memory") {
  const TestDevices devices;
  for (const std::string& dtype : kDTypes) {
    for (const char* axes :
         {"a=3 n=1 b=2", "a=2 n=7 b=3", "n=64 b=1", "a=1 n=1300 b=2", "n=4097"}) {
      if (dtype != "f32" && axes == std::string("n=4097")) continue;
      INFO(dtype << " " << axes);
      const std::string type = fmt::format("{}[\"{}\"]", dtype, axes);
      REQUIRE(difference(devices, type, [](const Tensors& in) { return argsort(in[0], "n"); }) ==
              "");
      REQUIRE(difference(devices, type, [](const Tensors& in) {
                return argsort(in[0], "n", SortOrder::kDescending);
              }) == "");
    }
  }
}

TEST_CASE("top_k on the GPU: by a warp, by a block, and by sorting") {
  const TestDevices devices;
  for (const std::string& dtype : kDTypes) {
    for (const auto& [axes, k] : std::vector<std::pair<std::string, int64_t>>{{"a=5 n=1 b=2", 1},
                                                                              {"a=11 n=64", 8},
                                                                              {"n=40 b=3", 32},
                                                                              {"n=1025 b=2", 3},
                                                                              {"n=40 b=3", 33},
                                                                              {"n=9 b=3", 9}}) {
      INFO(dtype << " " << axes << " k=" << k);
      const int64_t size = k;
      REQUIRE(difference(devices, fmt::format("{}[\"{}\"]", dtype, axes), [&](const Tensors& in) {
                return top_k(in[0], "n", {"k", size, {}}).indices;
              }) == "");
    }
  }
}

TEST_CASE("orders on the GPU: NaN, infinities, zeros of both signs and equal elements") {
  const TestDevices devices;
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {2, kNaN, -0.0, -kInfinity, 0.0, 2, kInfinity, -1.5, -kNaN};
  for (const char* type : {"f32[\"a=2 n=36\"]", "bf16[\"a=2 n=36\"]"}) {
    INFO(type);
    for (const SortOrder order : {SortOrder::kAscending, SortOrder::kDescending}) {
      REQUIRE(difference(
                  devices, type, [&](const Tensors& in) { return argsort(in[0], "n", order); }, {},
                  values) == "");
    }
    REQUIRE(difference(
                devices, type,
                [](const Tensors& in) {
                  return top_k(in[0], "n", {"k", 30, {}}).indices;
                },
                {}, values) == "");
  }
  REQUIRE(difference(devices, "i32[\"n=20\"]",
                     [](const Tensors& in) { return argsort(in[0], "n"); }, {},
                     {3, -2147483648.0, 2147483647, -1, 0}) == "");
}

// Covers part of a tile, several tiles, adjacent rows of one and of two blocks; in place.
TEST_CASE("cumulative_sum on the GPU: any row, any option, in place") {
  const TestDevices devices;
  for (const std::string& dtype : kDTypes) {
    const Tolerance tolerance = {.relative = dtype == "bf16" ? 8e-3 : 1e-5,
                                 .absolute = dtype == "i32" ? 0.0 : 1e-4};
    for (const char* axes : {"a=3 n=1", "a=2 n=77", "n=4501", "n=600 b=3", "a=2 n=300 b=9"}) {
      for (const bool exclusive : {false, true}) {
        for (const bool reverse : {false, true}) {
          INFO(dtype << " " << axes << " " << exclusive << reverse);
          const std::string type = fmt::format("{}[\"{}\"]", dtype, axes);
          const auto sums = [&](const Tensors& in) {
            return cumulative_sum(in[0], "n", {.exclusive = exclusive, .reverse = reverse});
          };
          REQUIRE(difference(devices, type, sums, tolerance) == "");
          REQUIRE(difference(devices, type, sums, tolerance, {}, {.in_place = true}) == "");
        }
      }
    }
  }
}

TEST_CASE("cumulative_sum on the GPU: integers are exact") {
  const TestDevices devices;
  // f32 cannot represent 2^24 + 1.
  REQUIRE(difference(devices, "i32[\"n=3000\"]",
                     [](const Tensors& in) { return cumulative_sum(in[0], "n"); }, {},
                     {16777, 1, 2}) == "");
}

}  // namespace
}  // namespace tessera::cuda
